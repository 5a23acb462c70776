"""Table 1 of RLRF: the lessons of M_0 and the critic, their mix, the pairs of the reward model."""

import json
import random
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.configs.load import Override, load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import required_roles
from lpfloop.loop.daemon.preparing import Preparation, prepare
from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.recipes.task_reward import UNVERIFIABLE
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.stages.weigh import copies
from lpfloop.loop.tiny.teacher import teacher
from lpfloop.loop.tiny.world import prompts
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Message

SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:able_policy",
    "critic.engine.script=scripts:spoiling_teacher",
    "prompts.per_iteration=24",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=10",
    "training.min_pairs=1000000",
)


class Silent:
    """A reporter that asks for a stop after some commits, if told to."""

    def __init__(self, stop: StopSignal | None = None, after: int = -1) -> None:
        self.commits, self._stop, self._after = 0, stop, after
        self.notes: list[str] = []

    def begin(self, iteration, stage, *, planned, done):
        pass

    def advance(self, iteration, stage, advance):
        self.commits += 1
        if self._stop is not None and self.commits == self._after:
            self._stop.request()

    def end(self, iteration, stage):
        pass

    def note(self, text):
        self.notes.append(text)


def made(lake: Path, variant: str, *overrides: str, listener: Silent | None = None) -> RunReader:
    """Run a recipe up to where it would train."""
    config = load_config("tiny", variant, (*SCRIPTED, *overrides), {})
    with pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name="a"), listener or Silent(), StopSignal())
    return open_run(lake, "a")


def rows(run: RunReader, table: str) -> pl.DataFrame:
    return run.scan(table).collect()


@pytest.fixture(scope="module")
def lessons(tmp_path_factory):
    run = made(
        tmp_path_factory.mktemp("lessons"),
        "reflective-sft",
        "recipe.drafted=0.75",
        "recipe.revised=0.6",
        "recipe.weights={answer: 0.5, critique_with_reference: 2}",
    )
    yield run
    run.close()


def test_the_four_kinds_of_lessons_are_one_mix_by_their_weights(lessons):
    counts = dict(rows(lessons, "demonstrations")["rule"].value_counts().iter_rows())
    assert counts["people"] == 24
    assert counts["critique"] + counts["critique_with_reference"] == 18
    assert counts["critique_with_reference/weighed"] == 2 * counts["critique_with_reference"]
    assert counts["critique/weighed"] == counts["critique"]
    # Half of each of the three chunks of 10, 10 and 4.
    assert counts["people/weighed"] == 12
    assert 0 < counts["reflection"] == counts["reflection/weighed"] < 11
    ids = rows(lessons, "demonstrations")["demonstration_id"]
    assert ids.n_unique() == ids.len()


def test_receipts_count_what_was_kept_repeated_and_left_out(lessons):
    told = Counter[str]()
    for row in rows(lessons, "receipts").filter(pl.col("filter") == "weigh").to_dicts():
        told[row["outcome"]] += row["count"]
    assert (told["kept: people"], told["left_out: people"]) == (12, 12)
    counts = dict(rows(lessons, "demonstrations")["rule"].value_counts().iter_rows())
    assert told["kept: critique_with_reference, 2 times"] == counts["critique_with_reference"]
    fates = rows(lessons, "receipts").filter(pl.col("filter") == "reflection")
    assert fates["count"].sum() == rows(lessons, "candidates").filter(kind="refinement").height
    outcomes = set(fates.filter(pl.col("count") > 0)["outcome"])
    assert "wrong_by_verifier" in outcomes
    assert "kept: verified" in outcomes


def test_a_reflection_is_learned_only_if_its_answer_passes(lessons):
    """By the verifier: the critic is not asked about what the verifier can tell."""
    verdicts = {c["candidate_id"]: c for c in rows(lessons, "critiques").to_dicts()}
    candidates = {c["candidate_id"]: c for c in rows(lessons, "candidates").to_dicts()}
    kept = rows(lessons, "demonstrations").filter(rule="reflection").to_dicts()
    assert kept
    for row in kept:
        better = candidates[row["candidate_id"]]
        verdict = verdicts[row["candidate_id"]]
        assert verdict["critic"] == "verifier"
        assert {aspect["rating"] for aspect in verdict["aspects"]} == {1}
        question = row["prompt"][0]["content"]
        assert candidates[better["parent_id"]]["text"] in question
        assert question.endswith("Revise the answer.")
        feedback = verdicts[better["parent_id"]]
        assert feedback["critique_id"] == better["critique_id"]
        assert feedback["text"] in question
        assert row["completion"][0]["content"] == better["text"]
    asked = [c for c in verdicts.values() if c["critic"] != "verifier"]
    assert not any(candidates[c["candidate_id"]]["kind"] == "refinement" for c in asked)


def test_a_critique_is_asked_for_as_the_loop_asks(lessons):
    found = rows(lessons, "demonstrations")
    shown = found.filter(rule="critique_with_reference")["prompt"].list.first()
    bare = found.filter(rule="critique")["prompt"].list.first()
    assert shown.struct.field("content").str.contains("[Reference]", literal=True).all()
    assert not bare.struct.field("content").str.contains("[Reference]", literal=True).any()


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    weight=st.floats(0, 3, allow_nan=False),
    seed=st.integers(0, 2**32),
)
def test_each_kind_has_its_share_whatever_the_units(sizes, weight, seed):
    weights = {"reflection": weight, "critique": 1.0}
    for number, size in enumerate(sizes):
        rules = ["reflection", "people"] * size
        counts = copies(rules, weights, 2.0, seed + number)
        mine, others = counts[::2], counts[1::2]
        assert others == [2] * size
        assert max(mine) - min(mine) <= 1
        assert abs(sum(mine) - weight * size) <= 1


@settings(max_examples=20)
@given(weight=st.sampled_from([0.02, 0.25, 0.5, 1.3]), seed=st.integers(0, 2**32))
def test_small_units_lose_nothing_of_a_small_weight(weight, seed):
    """Rounded down, a fiftieth of units of 10 rows would be none at all."""
    total = sum(
        sum(copies(["people"] * 10, {"people": weight}, 1.0, seed + unit)) for unit in range(500)
    )
    assert total == pytest.approx(weight * 5000, abs=5 * (500 * 0.25) ** 0.5)


def test_a_mix_without_a_weight_is_refused():
    none = "recipe.weights={answer: 0, reflection: 0, critique: 0, critique_with_reference: 0}"
    with pytest.raises(ConfigError, match="all weights are 0, so there is nothing to learn"):
        load_config("tiny", "reflective-sft", [none], {})
    with pytest.raises(ConfigError, match=r"recipe\.weights\.answr.*did you mean"):
        load_config("tiny", "reflective-sft", ["recipe.weights.answr=1"], {})


def test_a_teacher_is_a_model(tmp_path):
    config = load_config("tiny", "reflective-sft", ["critic.kind=verifier"], {})
    with pytest.raises(ConfigError, match=r"critic\.kind is verifier, which writes no better"):
        required_roles(Job(config=config, lake=tmp_path, name="a"))


@pytest.fixture(scope="module")
def rewarded(tmp_path_factory):
    run = made(
        tmp_path_factory.mktemp("rewarded"),
        "task-reward",
        "recipe.weights={preferred: 0.5, verified: 2}",
        "recipe.best_of=6",
    )
    yield run
    run.close()


def test_right_answers_are_paired_with_wrong_ones_by_the_verifier(rewarded):
    pairs = rows(rewarded, "pairs")
    counts = dict(pairs["rule"].value_counts().iter_rows())
    assert counts["success_vs_failure/weighed"] == 2 * counts["success_vs_failure"] > 0
    assert abs(counts["preferred/weighed"] - counts["preferred"] / 2) <= 3
    verdicts = {
        c["candidate_id"]: c["aspects"][0]["rating"]
        for c in rows(rewarded, "critiques").filter(critic="verifier").to_dicts()
    }
    for pair in pairs.filter(rule="success_vs_failure").to_dicts():
        assert verdicts[pair["chosen_id"]] == 1
        assert verdicts[pair["rejected_id"]] < 1


def test_files_of_preferences_feed_the_reward_model(tmp_path):
    pairs = [{"prompt": f"Say {n}.", "chosen": f"{n}", "rejected": f"No {n}."} for n in range(12)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    bare = tmp_path / "prompts.jsonl"
    bare.write_text("".join(f'{{"prompt": "Say {n} again."}}\n' for n in range(30)))
    own = (
        f"annotation.source=[{file}]",
        f"prompts.source={bare}",
        "policy.model=tiny",
        "policy.engine.script=scripts:policy",
        "assessment.oracle=null",
    )
    listener = Silent()
    run = made(tmp_path / "lake", "task-reward", *own, listener=listener)
    counts = dict(rows(run, "pairs")["rule"].value_counts().iter_rows())
    run.close()
    assert counts == {"preferred": 12, "preferred/weighed": 12}
    assert UNVERIFIABLE in listener.notes


def test_the_teacher_of_the_tiny_world_finds_and_mends_every_slip():
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=96)
    for prompt in prompts("train")[:60]:
        bad = prompt.exercise.careless(random.Random(0))
        shown = f"[Instruction] {prompt.text}\n[Answer] {bad}\n"

        def ask(text: str) -> str:
            message = Message(role="user", content=text)
            return teacher(Request(request_id="", messages=(message,), seed=1), sampling)

        said = ask(f"{shown}Rate it.")
        good = prompt.exercise.judge(bad).good
        assert (set(json.loads(said.splitlines()[-1]).values()) == {1}) == good
        better = ask(f"{shown}[Feedback] {said}\nRevise the answer.")
        assert prompt.exercise.judge(better).good
        assert (better == bad) == good


LEARNING = "{learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}"
TRAINED = (
    *SCRIPTED[:-1],
    "training.min_pairs=4",
    f"training.sft={LEARNING}",
    f"training.reward={LEARNING}",
    "training.reward.held_out=2",
    "assessment.kl=false",
    "verdict.on_regression=continue",
    "recipe.best_of=3",
)


def wanted(lake: Path, *overrides: str | Override) -> Preparation:
    return Preparation(
        method="rlrf",
        config="tiny",
        lake=lake,
        prefix="p",
        overrides=(*TRAINED, *overrides),
        env={},
    )


def units(lake: Path, name: str) -> set[tuple[str, str, str]]:
    """Return the units of a run and the hashes of their rows."""
    reader = RunReader(run_folder(lake, name))
    found = {(part.unit, part.table, part.sha256) for part in reader.journal.parts()}
    reader.close()
    return found


def stopped(job: Job) -> None:
    stop = StopSignal()
    run_loop(job, Silent(stop, after=12), stop)


def test_a_stopped_preparation_makes_what_an_uninterrupted_one_does(tmp_path):
    """Up to the first training."""

    def turn(job: Job) -> None:
        run_loop(job, Silent(), StopSignal())

    name, never = "p-reflective-sft", "training.min_pairs=1000000"
    with pytest.raises(Stopped):
        prepare(wanted(tmp_path / "a", never), stopped, lambda _: None)
    before = units(tmp_path / "a", name)
    for lake in ("a", "b"):
        with pytest.raises(NothingToTrainOn):
            prepare(wanted(tmp_path / lake, never), turn, lambda _: None)
    assert before < units(tmp_path / "a", name) == units(tmp_path / "b", name)


@pytest.mark.slow
@pytest.mark.model
def test_a_preparation_that_is_stopped_goes_on_where_it_was(tmp_path):
    turned = list[str]()

    def turn(job: Job) -> None:
        turned.append(job.name)
        run_loop(job, Silent(), StopSignal())

    with pytest.raises(Stopped):
        prepare(wanted(tmp_path), stopped, turned.append)
    before = units(tmp_path, "p-reflective-sft")
    assert not run_folder(tmp_path, "p-task-reward").exists()
    turned.clear()
    done = prepare(wanted(tmp_path), turn, lambda _: None)
    assert turned == ["p-reflective-sft", "p-task-reward"]
    assert before < units(tmp_path, "p-reflective-sft")
    assert done.policy == "p-reflective-sft:M_1"
    assert (Path(done.reward) / "config.json").is_file()

    run, other = (open_run(tmp_path, f"p-{name}") for name in ("reflective-sft", "task-reward"))
    (told,) = rows(run, "statistics").filter(pl.col("metric") == "rows/people").to_dicts()
    assert (told["step"], told["value"], told["method"]) == (0, 24.0, "sft")
    m_1 = rows(run, "checkpoints").filter(iteration=1)["checkpoint_id"].item()
    assert m_1 in rows(other, "checkpoints").filter(iteration=0)["path"].item()
    run.close()
    other.close()
    ended = {name: units(tmp_path, f"p-{name}") for name in ("reflective-sft", "task-reward")}
    prepare(wanted(tmp_path), turn, lambda _: None)
    assert ended == {name: units(tmp_path, f"p-{name}") for name in ended}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("annotation.pool=nowhere.yaml",), "task-reward: .*nowhere.yaml"),
        (("annotation.source=[nowhere.jsonl]",), "nowhere.jsonl: cannot be read"),
        (("recipe.nn=3",), "unknown key 'recipe.nn'"),
        (("recipe.weights.verified=-1",), "must be greater than or equal to 0"),
    ],
)
def test_what_the_last_recipe_would_refuse_is_refused_before_the_first(tmp_path, overrides, said):
    def turn(job: Job) -> None:
        raise AssertionError(job.name)

    with pytest.raises((ConfigError, InputError), match=said):
        prepare(wanted(tmp_path, *overrides), turn, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_begins_with_a_model_as_it_is_has_nothing_to_prepare(tmp_path):
    other = Preparation(method="dpo", config=None, lake=tmp_path, prefix="p", overrides=(), env={})
    with pytest.raises(ConfigError, match="prepare dpo: what can be prepared is rlrf"):
        prepare(other, lambda _: None, lambda _: None)
