"""Prompts are left out by rule and by judgment, once a run, and each one leaves a trace."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from commands import call
from crashing import KILLED, Attempt, Silent, loop, small_config, whole
from hypothesis import given
from hypothesis import strategies as st
from reviews import BAD, GOOD, write_prompts

from examples import PROMPT
from lpfloop.configs.filters import RuleFilters
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import ordered, run_loop
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.data.prompt_rules import Rules
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.run import Run
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.stages.select_prompts import Suitable, suitable
from lpfloop.loop.tiny.reviewer import reviewer
from lpfloop.loop.tiny.world import prompts as tiny_world
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.stores.records import SCORED, Message, Prompt, PromptReview

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "prompts.chunk=3",
    "prompts.dev_share=0",
    "recipe.n=2",
    "recipe.m=0",
    "iterations=1",
    "training.min_pairs=1000000",
)
JUDGED = (
    "prompts.quality.judge=model",
    "prompts.quality.model=tiny",
    "prompts.quality.engine.kind=scripted",
)
BY_REVIEWER = (*JUDGED, "prompts.quality.engine.script=lpfloop.loop.tiny.reviewer:reviewer")


class Telling(Silent):
    """A reporter that remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Requests(list):
    """Requests with their sampling; `stop` is asked for at the third."""

    stop: StopSignal | None = None

    def append(self, request) -> None:
        super().append(request)
        if self.stop is not None and len(self) == 3:
            self.stop.request()


def job(folder: Path, *overrides: str, texts=(*GOOD, *BAD), name: str = "a") -> Job:
    source = f"prompts.source={write_prompts(folder, *texts)}"
    config = load_config("tiny", "rlrf", (*SETTINGS, source, *overrides), {})
    return Job(config=config, lake=folder, name=name)


@contextmanager
def running(
    wanted: Job, stop: StopSignal | None = None
) -> Iterator[tuple[Run, list[Prompt], Telling]]:
    stop = stop or StopSignal()
    prompts = load_prompts(wanted.config.prompts, seed=wanted.config.seed)
    told = Telling()
    with opened(wanted, prompts, told, stop) as run:
        yield run, ordered(prompts, "train", wanted.config.seed), told


def chosen(wanted: Job) -> tuple[Suitable, list[str]]:
    with running(wanted) as (run, train, told):
        return suitable(run, train), told.notes


def texts_of(prompts) -> set[str]:
    return {prompt.instruction for prompt in prompts}


def receipts_of(folder: Path, name: str = "a", number: int = 0) -> dict[str, dict[str, int]]:
    reader = open_run(folder, name)
    found = status(reader, number)["iterations"][0]["receipts"]
    reader.close()
    return {
        account["filter"]: {o["outcome"]: o["count"] for o in account["outcomes"]}
        for account in found
    }


def reviews_of(run: Run) -> list[PromptReview]:
    journal = run.store.journal
    keys = journal.keys(0, "prompts:review")
    return [row for key in keys for row in run.store.rows(PromptReview, key)]


@pytest.fixture
def asked(monkeypatch) -> Requests:
    """Every request for a review that a scripted model gets from now on, with its sampling."""
    requests = Requests()
    answer = ScriptedEngine._complete

    def noting(self, request, sampling):
        if request.request_id.startswith("review-"):
            requests.append((request, sampling))
        return answer(self, request, sampling)

    monkeypatch.setattr(ScriptedEngine, "_complete", noting)
    return requests


# rules


def prompt(*turns: str, role: str = "user") -> Prompt:
    messages = tuple(Message(role=role, content=turn) for turn in turns)
    return replace(PROMPT, prompt_id=f"prompt-{'-'.join(turns)}", messages=messages)


def fates(rules: RuleFilters, *prompts: Prompt) -> list[str]:
    return Rules.from_config(rules).fates(prompts)


def test_length_is_counted_in_characters_of_what_is_said_without_the_system():
    rules = RuleFilters(min_chars=3, max_chars=5)
    named = replace(
        PROMPT, messages=(Message(role="system", content="Be brief."), *prompt("hi").messages)
    )
    found = fates(rules, prompt("hi"), prompt("  hi  "), prompt("hello"), prompt("hello!"), named)
    assert found == ["too_short", "too_short", "kept", "too_long", "too_short"]


def test_copies_are_told_whatever_their_case_and_space_but_near_copies_stay():
    found = fates(
        RuleFilters(duplicates=True),
        prompt("What is 3 + 4?"),
        prompt("  what is\n3 + 4? "),
        prompt("What is 3 - 4?"),
        prompt("What is 3 + 5?"),
        prompt("What is \uff13 + 4?"),
        prompt("What is", "3 + 4?"),
    )
    assert found == ["kept", "duplicate", "kept", "kept", "duplicate", "kept"]


def test_a_copy_of_a_prompt_that_was_dropped_is_no_copy():
    rules = RuleFilters(duplicates=True, max_chars=4)
    assert fates(rules, prompt("a  bc"), prompt("a bc"), prompt("A bc")) == [
        "too_long",
        "kept",
        "duplicate",
    ]


@pytest.mark.parametrize(
    ("text", "scripts", "fate"),
    [
        ("Write a poem.", ("latin",), "kept"),
        ("写一首诗。", ("latin",), "other_script"),
        ("写一首诗。", ("latin", "Han"), "kept"),
        ("Translate 诗 into English.", ("latin",), "kept"),
        ("Напиши poem.", ("latin",), "other_script"),
        ("用Python实现binary search tree的插入", ("han",), "kept"),
        (
            "翻译：The gentleman attended the meeting, dressed in formal attire.",
            ("han",),
            "other_script",
        ),
        (
            "翻译：The gentleman attended the meeting, dressed in formal attire.",
            ("han", "latin"),
            "kept",
        ),
        ("東京タワーについて教えて", ("latin",), "other_script"),
        ("3 + 4 = ?", ("latin",), "kept"),
        ("これは何ですか", ("hiragana",), "kept"),
    ],
)
def test_a_prompt_is_in_the_script_of_most_of_its_letters(text, scripts, fate):
    assert fates(RuleFilters(scripts=scripts), prompt(text)) == [fate]


@given(st.lists(st.text(max_size=6), max_size=8), st.booleans())
def test_every_prompt_meets_one_fate_and_more_prompts_change_no_earlier_one(texts, duplicates):
    rules = RuleFilters(min_chars=2, max_chars=5, duplicates=duplicates, scripts=("latin",))
    prompts = [
        replace(PROMPT, prompt_id=str(n), messages=prompt(t).messages) for n, t in enumerate(texts)
    ]
    found = fates(rules, *prompts)
    assert len(found) == len(texts)
    assert fates(rules, *prompts[:-1]) == found[:-1]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("prompts.rules.scripts=[latin, klingon]", "'klingon' is not a script of Unicode"),
        ("prompts.rules={min_chars: 9, max_chars: 3}", "min_chars is 9 and max_chars 3"),
        ("prompts.quality={judge: model, intentions: nowhere}", "no pool of intentions"),
        ("prompts.quality={judge: model, per_intention: 3}", "but there are no classes"),
        ("prompts.quality={judge: model, engine: {kind: vllm}}", r"set prompts\.quality\.model"),
    ],
)
def test_filters_that_can_not_be_used_are_refused_before_anything_is_written(
    tmp_path, override, told
):
    with pytest.raises(ConfigError, match=told), running(job(tmp_path, override)):
        pass
    assert not (tmp_path / "runs").exists()


def test_rules_leave_a_receipt_with_counts_and_ids(tmp_path):
    wanted = job(
        tmp_path,
        "prompts.rules={duplicates: true, max_chars: 30}",
        texts=(*GOOD, *GOOD[:2], GOOD[0].upper(), "x" * 40),
    )
    left, _ = chosen(wanted)
    assert texts_of(left.prompts) >= set(GOOD[1:])
    assert receipts_of(tmp_path) == {"prompts:rules": {"kept": 8, "duplicate": 1, "too_long": 1}}
    reader = open_run(tmp_path, "a")
    (account,) = status(reader, 0)["iterations"][0]["receipts"]
    assert (account["received"], account["kept"], account["items"]) == (10, 8, "prompts")
    (long,) = [o for o in account["outcomes"] if o["outcome"] == "too_long"]
    assert long["examples"] == (
        next(p.prompt_id for p in _train(wanted) if len(p.instruction) == 40),
    )
    reader.close()


def _train(wanted: Job) -> list[Prompt]:
    return load_prompts(wanted.config.prompts, seed=wanted.config.seed)


# reviews


def test_prompts_that_a_judge_finds_bad_are_dropped_by_their_worst_aspect(tmp_path):
    with running(job(tmp_path, *BY_REVIEWER)) as (run, train, _):
        left = suitable(run, train)
        reviews = reviews_of(run)
    assert texts_of(left.prompts) == set(GOOD)
    assert len(reviews) == len(GOOD) + len(BAD)
    assert {review.status for review in reviews} == {SCORED}
    found = receipts_of(tmp_path)
    assert found == {"prompts:quality": {"kept": len(GOOD), **dict.fromkeys(BAD.values(), 1)}}


def test_the_least_rating_decides_and_a_fork_asks_nothing_again(tmp_path, asked):
    chosen(job(tmp_path, *BY_REVIEWER))
    count = len(asked)
    assert count == len(GOOD) + len(BAD)
    lenient = job(tmp_path, *BY_REVIEWER, "prompts.quality.least=-1", name="b")
    left, _ = chosen(replace(lenient, fork="a"))
    assert len(left.prompts) == count == len(asked)
    assert receipts_of(tmp_path, "b")["prompts:quality"] == {"kept": count}


def test_what_is_not_read_is_asked_again_warmer_and_under_another_seed(tmp_path, asked):
    wavering = (
        *JUDGED,
        "prompts.quality.engine.script=reviews:wavering",
        "prompts.quality.attempts=8",
    )
    with running(job(tmp_path, *wavering)) as (run, train, _):
        suitable(run, train)
        reviews = reviews_of(run)
        retries = sum(state.totals.get("retries", 0) for state in run.store.journal.stages())
    assert len({request.seed for request, _ in asked}) == len(asked) == len(reviews) + retries
    assert {s.temperature for _, s in asked} == {0.0, 0.7}
    assert sum(review.attempts for review in reviews) == len(asked)
    assert all(review.attempts <= 8 for review in reviews)
    assert sum(review.status == SCORED for review in reviews) > len(reviews) / 2


def test_a_prompt_that_nobody_could_judge_is_kept_and_counted(tmp_path):
    silent = (*JUDGED, "prompts.quality.engine.script=reviews:silent")
    with running(job(tmp_path, *silent)) as (run, train, _):
        left = suitable(run, train)
        reviews = reviews_of(run)
    assert [p.prompt_id for p in left.prompts] == [p.prompt_id for p in train]
    assert {r.status for r in reviews} == {"no_dictionary"}
    assert {r.attempts for r in reviews} == {2}
    assert all(a.rating is None for r in reviews for a in r.aspects)
    count = len(train)
    assert receipts_of(tmp_path) == {"prompts:quality": {"kept": 0, "kept: unjudged": count}}


def test_a_stop_loses_no_review_and_changes_nothing(tmp_path, asked):
    with running(job(tmp_path, *BY_REVIEWER, "prompts.chunk=1")) as (run, train, _):
        straight, said = suitable(run, train), reviews_of(run)
    whole = len(asked)
    asked.clear()
    asked.stop = StopSignal()
    stopped = job(tmp_path, *BY_REVIEWER, "prompts.chunk=1", name="b")
    with pytest.raises(Stopped), running(stopped, asked.stop) as (run, train, _):
        suitable(run, train)
    assert 0 < len(asked) < whole
    with running(stopped) as (run, train, _):
        assert suitable(run, train) == straight
        assert reviews_of(run) == said
    assert len(asked) == whole
    with running(stopped) as (run, train, _):
        assert suitable(run, train) == straight
    assert len(asked) == whole


def test_if_nothing_is_left_the_run_says_which_setting_did_it(tmp_path):
    wanted = job(tmp_path, "prompts.rules.min_chars=1000")
    with pytest.raises(NothingToTrainOn, match=r"prompts\.rules leaves no prompt"):
        chosen(wanted)


def test_without_filters_there_is_no_stage_and_no_prompt_moves(tmp_path):
    with running(job(tmp_path)) as (run, train, _):
        left = suitable(run, train)
        assert left == Suitable(prompts=train)
        assert run.store.journal.stages() == []
    assert left.share(1, None) == train
    assert left.share(2, 4) == train[4:8]
    assert left.share(4, 4) == [*train[1:5]]


# intentions


def test_every_class_has_a_count_and_those_that_are_short_are_told(tmp_path):
    world = [p.text for p in tiny_world("train", size=40)]
    settings = (*BY_REVIEWER, "prompts.quality.intentions=tiny", "prompts.quality.per_intention=10")
    left, notes = chosen(job(tmp_path, *settings, texts=(*world, *BAD)))
    assert texts_of(left.prompts) == set(world)
    counts = Counter(left.intentions[p.prompt_id] for p in left.prompts)
    found = receipts_of(tmp_path)["prompts:intentions"]
    assert sum(found.values()) == len(world)
    for name in ("mathematics", "life", "instruction", "conversation"):
        short = "" if counts[name] >= 10 else ", short of 10"
        assert found[f"kept: {name}{short}"] == counts[name]
    assert counts["conversation"] < 10
    (note,) = notes
    assert f"conversation, short of 10 (it has {counts['conversation']})" in note


CLASSES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=24)


@given(CLASSES, st.integers(0, 4), st.integers(1, 30), st.integers(1, 6))
def test_a_share_holds_the_least_of_each_class_as_far_as_there_are_any(
    classes, least, size, number
):
    prompts = [replace(PROMPT, prompt_id=str(n)) for n in range(len(classes))]
    known = {str(n): name for n, name in enumerate(classes) if name is not None}
    share = Suitable(prompts=prompts, intentions=known, least=least).share(number, size)
    taken = min(size, len(prompts))
    assert len({p.prompt_id for p in share}) == len(share) == taken
    have, there = (Counter(known.get(p.prompt_id) for p in some) for some in (share, prompts))
    names = sorted(set(known.values()))
    wanted = {name: min(least, there[name]) for name in names}
    if sum(wanted.values()) <= taken:
        assert all(have[name] >= wanted[name] for name in names)
    else:
        assert all(have[name] <= wanted[name] for name in names)
        lacking = [have[name] for name in names if have[name] < wanted[name]]
        assert max(have[name] for name in names) - min(lacking) <= 1


def test_a_prompt_that_stood_back_for_a_rare_class_is_the_first_of_the_next_iteration():
    prompts = [replace(PROMPT, prompt_id=name) for name in ("a0", "a1", "a2", "a3", "b0", "b1")]
    classes = {p.prompt_id: p.prompt_id[0] for p in prompts}
    left = Suitable(prompts=prompts, intentions=classes, least=1)
    shares = [[p.prompt_id for p in left.share(number, 3)] for number in (1, 2, 3)]
    assert shares == [["a0", "a1", "b0"], ["a2", "a3", "b1"], ["a0", "a1", "b0"]]


@given(CLASSES, st.integers(1, 30), st.integers(1, 6))
def test_without_a_least_number_iterations_take_turns_through_all_prompts(classes, size, number):
    prompts = [replace(PROMPT, prompt_id=str(n)) for n in range(len(classes))]
    share = Suitable(prompts=prompts).share(number, size)
    taken = min(size, len(prompts))
    first = (number - 1) * taken
    assert share == [prompts[(first + n) % len(prompts)] for n in range(taken)]


# a whole run


def test_a_run_works_on_what_is_left_and_status_tells_what_was_dropped(tmp_path):
    wanted = job(tmp_path, *BY_REVIEWER, "prompts.rules.duplicates=true", "prompts.per_iteration=6")
    with pytest.raises(NothingToTrainOn):
        run_loop(wanted, Silent(), StopSignal())
    reader = open_run(tmp_path, "a")
    asked = set(reader.scan("candidates", iteration=1).collect()["prompt_id"])
    kept = {p.prompt_id for p in _train(wanted) if p.instruction in GOOD}
    reader.close()
    assert len(asked) == 6
    assert asked <= kept
    _, told, _ = call(tmp_path, "status", "a")
    assert "prompts:rules: 11 prompts, 11 kept" in told
    assert "prompts:quality: 11 prompts, 8 kept; 1 low_answerability, as prompt-" in told
    found = json.loads(call(tmp_path, "status", "a", "--json")[1])
    quality = found["iterations"][0]["receipts"][0]
    assert {o["outcome"]: o["count"] for o in quality["outcomes"]}["low_semantics"] == 1
    assert found["iterations"][1]["receipts"] == []


def test_the_tiny_reviewer_finds_the_prompts_of_its_world_good_and_knows_their_classes():
    from lpfloop.configs.filters import PromptQuality
    from lpfloop.critics.quality.prompt_review import Reviewer
    from lpfloop.policies.engines.engine import Request, Sampling

    asking = Reviewer.from_config(PromptQuality(intentions="tiny"))
    classes = {
        "math": {"mathematics"},
        "facts": {"life"},
        "general": {"instruction", "conversation"},
    }
    for tiny in tiny_world("train", size=60):
        question = asking.ask(tiny.text)
        request = Request(request_id="review-x", messages=question.messages, seed=0)
        text = reviewer(request, Sampling(temperature=0.0, top_p=1.0, max_tokens=512))
        (reading,) = question.read(text, "stop")
        assert [a.rating for a in reading.value.aspects] == [1, 1, 1]
        assert reading.value.intention in classes[tiny.task]


@pytest.mark.crash
def test_a_kill_while_prompts_are_filtered_changes_nothing(tmp_path):
    prompts = write_prompts(tmp_path, *GOOD, GOOD[0].upper(), *BAD)
    rules = "prompts.rules.duplicates=true"
    config = small_config(prompts, *BY_REVIEWER, rules, "iterations=1")
    work = partial(loop, config=config)
    straight = tmp_path / "straight"
    straight.mkdir()
    Attempt(lake=straight, work=work).finish()
    for number in range(3, 7):
        lake = tmp_path / str(number)
        lake.mkdir()
        point = {f"part.rename.before#{number}": "kill"}
        assert Attempt(lake=lake, work=work, points=point).start() == KILLED
        Attempt(lake=lake, work=work).finish()
        assert whole(lake) == whole(straight)
    # One more is a dev prompt.
    assert receipts_of(straight)["prompts:rules"] == {"kept": 10, "duplicate": 1}
