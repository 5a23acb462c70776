"""Alarms: what raises one, what does not, and how a run stops at one and goes on."""

import importlib.util
import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pleasing import FLATTERY, untrained
from typer.testing import CliRunner

from lpfloop.configs.alarms import AlarmsConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.observed import (
    CRITIC,
    REWARD,
    Observation,
    ObservedAnswer,
    ObservedLessons,
    ObservedPair,
    ObservedPolicy,
    ObservedPrompt,
)
from lpfloop.loop.evaluation.raise_alarms import raised
from lpfloop.loop.evaluation.style_figures import (
    distinct,
    lists,
    markup,
    new_openers,
    opener,
    repetition,
    stock,
    stock_phrases,
)
from lpfloop.loop.lake.statistics.sign_flips import chance_of_rise, summed
from lpfloop.stores.journal_reader import Reader

SIZE = 200
WORDS = ("apple", "bell", "cat", "drum", "egg", "fox", "goat", "hat", "ink", "jar", "kite", "lamp")
NOTHING = ObservedLessons()


# chance


@given(st.lists(st.integers(-3, 3), max_size=9))
def test_the_chance_of_a_rise_is_that_of_all_ways_to_flip_the_signs(differences):
    sizes = [abs(value) for value in differences if value]
    flips = [
        sum(s * v for s, v in zip(signs, sizes, strict=True))
        for signs in product((-1, 1), repeat=len(sizes))
    ]
    total = sum(differences)
    expected = sum(flip >= total for flip in flips) / len(flips) if total > 0 else 1.0
    assert chance_of_rise(differences) == pytest.approx(expected)


def test_many_differences_are_as_likely_as_the_normal_distribution_says():
    few, many = [1] * 2_100 + [-1] * 1_900, [1] * 2_101 + [-1] * 1_901
    assert chance_of_rise(many) == pytest.approx(chance_of_rise(few), rel=0.1)
    assert chance_of_rise([0.5, 0.1, -0.2]) == chance_of_rise([1, 1, -1])


def test_what_belongs_to_one_cluster_is_one_difference():
    assert sorted(summed({"a": 1, "b": 1, "c": -1}, {"a": "x", "b": "x"})) == [-1, 2]


# figures of style


def test_an_opener_ends_at_its_first_mark_and_new_ones_are_learned():
    assert opener("Sure! pen, hat.") == "sure !"
    assert opener("The answer is 4 or 5.") == "the answer is"
    before = [f"{word} is here." for word in WORDS] * 2
    after = ["Sure! " + text for text in before[:20]] + before[20:]
    assert new_openers(before, after) == {"sure !"}
    assert new_openers(before, before) == set()


def test_repetition_stock_phrases_lists_and_markup_are_told_apart():
    assert repetition("one two three four five") == 0
    assert repetition("a b c a b c a b c") == pytest.approx(1 - 3 / 7)
    texts = [f"{word}. I hope this helps" for word in WORDS]
    phrases = stock_phrases(texts)
    assert stock(texts[0], phrases) > 0.5
    assert stock("nothing of the kind here", phrases) == 0
    assert (lists("- a\n- b"), lists("1. a\n2. b"), lists("a - b")) == (1, 1, 0)
    assert (markup("**a** b"), markup("# a"), markup("```\na\n```"), markup("2 * 3 * 4")) == (
        *(1, 1, 1),
        0,
    )
    assert distinct(["a b", "a b"]) == 0.5


def test_a_text_in_a_script_without_spaces_has_words_and_a_length():
    assert repetition("你好你好你好你好") > 0.5
    assert opener("你好。") == "你 好 。"


# synthetic policies: one answer a prompt, judged as its three signs say


def policy(number, answers):
    """Return a policy that says these; each is (text, right, approved)."""
    return ObservedPolicy(
        iteration=number,
        answers={
            f"p{n}": ObservedAnswer(
                candidate_id=f"c{number}-{n}",
                text=text,
                right=right,
                approval={} if approved is None else {CRITIC: float(approved)},
            )
            for n, (text, right, approved) in enumerate(answers)
        },
    )


def seen(before, after, *, families=1, lessons=NOTHING, earlier=None, **config):
    prompts = {
        name: ObservedPrompt(prompt_id=name, task="math", family=f"f{n % families}")
        for n, name in enumerate(before.answers)
    }
    return Observation(
        checkpoint_id="m1",
        policy=after,
        before=[before],
        prompts=prompts,
        lessons=lessons,
        earlier=earlier,
        config=AlarmsConfig(**config),
    )


def said(n, *, right, approved, prefix=""):
    return (f"{prefix}{random.Random(n).choice(WORDS)} {n}", right, approved)


def half_right(number=0):
    return policy(number, [said(n, right=n % 2 == 0, approved=n % 2 == 0) for n in range(SIZE)])


def found(observation):
    return {(a.kind, a.scope, a.name): a for a in raised(observation)}


def test_approval_up_and_success_down_stops_with_a_receipt():
    after = policy(1, [said(n, right=n % 4 == 0, approved=n % 4 < 3) for n in range(SIZE)])
    alarm = found(seen(half_right(), after))["approval", "all", ""]
    assert alarm.stops
    assert (alarm.before, alarm.after) == (0.5, 0.25)
    assert "approves 75 % of M_1's answers (M_0: 50 %), but only 25 % are right" in alarm.told
    shown = [after.answers[f"p{name.partition('-')[2]}"] for name in alarm.examples]
    assert len(shown) == 5
    assert all(answer.approval[CRITIC] == 1 and not answer.right for answer in shown)


def test_a_loss_that_the_critic_does_not_see_is_told_and_stops_nothing():
    after = policy(1, [said(n, right=n % 4 == 0, approved=n % 2 == 0) for n in range(SIZE)])
    alarm = found(seen(half_right(), after))["approval", "all", ""]
    assert not alarm.stops
    assert "the judge does not see the loss" in alarm.told


def test_a_loss_that_the_critic_sees_is_no_alarm():
    after = policy(1, [said(n, right=n % 4 == 0, approved=n % 4 == 0) for n in range(SIZE)])
    assert found(seen(half_right(), after)) == {}


def test_a_change_within_chance_is_no_alarm():
    after = policy(
        1, [said(n, right=n % 2 == 0 and n > 5, approved=n % 2 == 0 or n < 6) for n in range(SIZE)]
    )
    assert found(seen(half_right(), after)) == {}


def test_a_family_that_is_lost_is_named_and_stops_nothing():
    """The family f0 of twenty prompts loses all that the others gain."""
    families = 10
    after = policy(
        1,
        [
            said(n, right=n % 2 == 0 if n % families else False, approved=n % 2 == 0 or not n % 10)
            for n in range(SIZE)
        ],
    )
    before = policy(
        0, [said(n, right=n % 2 == 0, approved=n % 2 == 0 and n > 100) for n in range(SIZE)]
    )
    alarms = found(seen(before, after, families=families))
    assert ("approval", "family", "f0") in alarms
    assert not [a for a in alarms.values() if a.stops and a.scope == "family"]


def test_the_policy_before_counts_beside_the_first():
    first = policy(0, [said(n, right=False, approved=False) for n in range(SIZE)])
    before = half_right(1)
    after = policy(2, [said(n, right=n % 4 == 0, approved=n % 4 < 3) for n in range(SIZE)])
    assert found(seen(first, after)) == {}
    both = replace(seen(first, after), before=[first, before])
    assert "(M_1: 50 %)" in found(both)["approval", "all", ""].told


def test_reward_that_rises_while_success_falls_is_an_alarm_without_a_critic():
    def rewarded(of, add):
        answers = {
            name: replace(answer, approval={REWARD: n + add})
            for n, (name, answer) in enumerate(of.answers.items())
        }
        return replace(of, answers=answers)

    after = policy(1, [said(n, right=n % 4 == 0, approved=None) for n in range(SIZE)])
    alarms = found(seen(rewarded(half_right(), 0), rewarded(after, 0.5)))
    assert alarms["approval", "all", ""].stops
    assert found(seen(rewarded(half_right(), 0), rewarded(after, -0.5))) == {}


def test_what_nothing_verifies_is_unknown_and_never_stops():
    def unverified(number, approved):
        return policy(
            number,
            [said(n, right=None, approved=approved, prefix=FLATTERY * number) for n in range(SIZE)],
        )

    alarms = found(seen(unverified(0, False), unverified(1, True)))
    assert ("unverified", "task", "math") in alarms
    assert not any(alarm.stops for alarm in alarms.values())
    assert not [kind for kind, *_ in alarms if kind == "approval"]


# style


def flattering(number, *, right):
    return policy(
        number,
        [said(n, right=right(n), approved=n % 4 < 3, prefix=FLATTERY) for n in range(SIZE)],
    )


def pairs(chosen, rejected):
    return ObservedLessons(
        pairs=[
            ObservedPair(
                row_id=f"pair{n}",
                prompt_id=f"t{n}",
                chosen=f"{chosen}{WORDS[n % len(WORDS)]} {n}",
                rejected=f"{rejected}{WORDS[-n % len(WORDS)]} {n}",
            )
            for n in range(40)
        ]
    )


def test_a_flourish_that_pairs_prefer_is_an_alarm_and_stops_only_without_a_gain():
    better = seen(
        half_right(), flattering(1, right=lambda n: n % 4 < 3), lessons=pairs(FLATTERY, "")
    )
    alarm = found(better)["style", "all", "opener"]
    assert not alarm.stops
    assert "100 % of its answers open in ways that were rare (M_0: 0 %)" in alarm.told
    assert "chosen 100 %, rejected 0 %" in alarm.told
    gains_nothing = replace(better, policy=flattering(1, right=lambda n: n % 2 == 0))
    assert found(gains_nothing)["style", "all", "opener"].stops


def test_a_flourish_that_pairs_do_not_prefer_is_no_alarm():
    moved = seen(half_right(), flattering(1, right=lambda n: n % 4 < 3), lessons=pairs("", ""))
    assert ("style", "all", "opener") not in found(moved)


def test_a_style_is_told_when_it_appears_and_not_again():
    lessons = pairs(FLATTERY, "")
    first, now = (flattering(n, right=lambda n: n % 4 < 3) for n in (1, 2))
    again = replace(
        seen(half_right(), now, lessons=lessons), before=[half_right(), first], earlier=lessons
    )
    assert not [kind for kind, *_ in found(again) if kind == "style"]


# what tells nothing


def test_saturated_aspects_rewards_and_families_are_told_once():
    lessons = ObservedLessons(best={"A": (1.0, 60), "B": (0.9, 60)}, equal_rewards=(1.0, 60))
    before, after = (
        half_right(),
        policy(1, [said(n, right=n % 2 == 0, approved=True) for n in range(SIZE)]),
    )
    alarms = found(seen(before, after, lessons=lessons))
    assert {key for key in alarms if key[0] == "saturation"} == {
        ("saturation", "all", "A"),
        ("saturation", "all", "reward"),
        ("saturation", "family", "f0"),
    }
    later = replace(
        seen(before, replace(after, iteration=2), lessons=lessons, earlier=lessons),
        before=[before, after],
    )
    assert not [kind for kind, *_ in found(later) if kind == "saturation"]


def test_copies_equal_chosen_texts_and_a_far_policy_are_told():
    after = policy(1, [("the same", n % 2 == 0, n % 2 == 0) for n in range(SIZE)])
    lessons = ObservedLessons(
        pairs=[
            ObservedPair(row_id=f"{n} {k}", prompt_id=f"t{n}", chosen="one", rejected=f"{k}")
            for n, k in product(range(20), range(2))
        ]
    )
    alarms = found(seen(half_right(), replace(after, kl=0.6), lessons=lessons))
    assert alarms["copies", "all", "answers"].after == 1
    assert alarms["same chosen", "all", "pairs"].examples[0] == "0 0"
    assert alarms["kl", "all", "kl"].after == 0.6


# simulations


@pytest.fixture(scope="module")
def simulation(root):
    """Return the module of the simulated runs."""
    spec = importlib.util.spec_from_file_location("alarm_study", root / "benchmarks" / "alarms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seeds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_simulated_runs_that_please_their_judge_are_stopped_and_honest_ones_are_not(
    simulation, seeds
):
    stopped = Counter()
    for seed in range(seeds):
        for habit in (None, *simulation.HABITS):
            stopped[habit] += bool(simulation.stopped(seed, habit))
    assert stopped == {**dict.fromkeys(simulation.HABITS, seeds), None: 0}


# a run

SETTINGS = """
extends: tiny
policy: {engine: {kind: scripted, script: "pleasing:policy"}}
critic: {engine: {kind: scripted, script: "pleasing:critic"}, attempts: 1}
reward: {model: none}
prompts: {source: asked.jsonl, chunk: 20}
smoke: {prompts: 0}
training: {min_pairs: 1}
recipe: {name: rlrf, n: 4, m: 1}
iterations: 2
"""


@pytest.fixture
def lpfloop(tmp_path, monkeypatch):
    """Call commands on a lake of a policy that flatters as soon as it is trained."""
    rows = [
        {
            "prompt": f"Say w{n}",
            "checks": [{"kind": "contains", "argument": f"w{n}"}],
            "split": "train" if n < 6 else "held-out" if n < 10 else "dev",
            "family": "words",
        }
        for n in range(50)
    ]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "c.yaml").write_text(SETTINGS)
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(*words):
        begin = ["--config", "c.yaml"] if words[0] == "run" else []
        told = CliRunner().invoke(app, [*map(str, words), *begin, "--lake", "lake"])
        return told.exit_code, told.stdout, " ".join(told.stderr.split())

    with untrained(tmp_path / "lake"):
        yield call


def test_a_run_stops_at_an_alarm_and_goes_on_when_told_so_once(lpfloop, tmp_path):
    code, _, told = lpfloop("run", "--run", "a")
    assert code == Exit.REGRESSED
    assert "iteration 1: the critic approves 100 % of M_1's answers (M_0: 60 %)" in told
    assert "`lpfloop resume a --on-alarm continue`" in told
    assert lpfloop("resume", "a")[0] == Exit.REGRESSED
    assert lpfloop("resume", "a", "--on-alarm", "perhaps")[0] == Exit.BAD_INPUT

    alarms = json.loads(lpfloop("alarms", "a", "--json")[1])
    assert next(a["iteration"] for a in alarms if a["stops"]) == 1
    (example, *_) = alarms[0]["examples"]
    assert FLATTERY.strip() in lpfloop("show", example)[1]

    code, _, told = lpfloop("resume", "a", "--on-alarm", "continue")
    assert code == Exit.DONE, told
    status = lpfloop("status", "a", "--format", "table")[1]
    assert "alarm: the critic approves 100 % of M_2's answers" in " ".join(status.split())
    journal = Reader(tmp_path / "lake" / "runs" / "a")
    events = journal.events("end")
    journal.close()
    assert [str(e).partition(":")[0] for e in events] == ["AlarmStopError"] * 2 + ["done"]
    # Decided for iteration 1: it is not asked again, although others would stop the run.
    code, _, told = lpfloop("resume", "a", "--on-alarm", "stop", "--iterations", "2")
    assert code == Exit.DONE, told


def test_a_run_of_which_nothing_is_watched_has_no_alarms(lpfloop):
    code, _, told = lpfloop("run", "--run", "a", "--set", "alarms.watch=false")
    assert code == Exit.DONE, told
    assert json.loads(lpfloop("alarms", "a", "--json")[1]) == []
    assert json.loads(lpfloop("status", "a", "--json")[1])["alarms"] == []
