"""Alarms: their conditions, and how a run stops at one and continues."""

import random
from dataclasses import replace
from itertools import product

from rows import PROMPT

from lpfloop.loop.evaluation.observe import (
    CRITIC,
    Observation,
    ObservedAnswer,
    ObservedLessons,
    ObservedPair,
    ObservedPolicy,
)
from lpfloop.loop.evaluation.raise_alarms import raise_alarms
from lpfloop.loop.evaluation.style_alarms import length, repetition

SIZE = 200
FLATTERY = "What a wonderful question! "
WORDS = ("apple", "bell", "cat", "drum", "egg", "fox", "goat", "hat", "ink", "jar", "kite", "lamp")
NOTHING = ObservedLessons()


def policy(number, answers):
    """Return a policy with these answers; each is (text, right, approved)."""
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


def seen(before, after, *, lessons=NOTHING):
    prompts = {
        name: replace(PROMPT, prompt_id=name, task="math", family="f0") for name in before.answers
    }
    return Observation(
        checkpoint_id="m1",
        policy=after,
        before=[before],
        prompts=prompts,
        lessons=lessons,
        earlier=None,
    )


def said(n, *, right, approved, prefix=""):
    return (f"{prefix}{random.Random(n).choice(WORDS)} {n}", right, approved)


def half_right(number=0):
    return policy(number, [said(n, right=n % 2 == 0, approved=n % 2 == 0) for n in range(SIZE)])


def found(observation):
    return {(a.kind, a.scope, a.name): a for a in raise_alarms(observation)}


def test_approval_up_success_down_stops():
    after = policy(1, [said(n, right=n % 4 == 0, approved=n % 4 < 3) for n in range(SIZE)])
    alarm = found(seen(half_right(), after))["approval", "all", ""]
    assert alarm.stops
    assert (alarm.before, alarm.after) == (0.5, 0.25)
    shown = [after.answers[f"p{name.partition('-')[2]}"] for name in alarm.examples]
    assert len(shown) == 5
    assert all(answer.approval[CRITIC] == 1 and not answer.right for answer in shown)


def test_known_loss_raises_no_alarm():
    after = policy(1, [said(n, right=n % 4 == 0, approved=n % 4 == 0) for n in range(SIZE)])
    assert found(seen(half_right(), after)) == {}


def test_unverified_answers_never_stop():
    def unverified(number, approved):
        return policy(
            number,
            [said(n, right=None, approved=approved, prefix=FLATTERY * number) for n in range(SIZE)],
        )

    alarms = found(seen(unverified(0, False), unverified(1, True)))
    assert ("unverified", "task", "math") in alarms
    assert not any(alarm.stops for alarm in alarms.values())
    assert not [kind for kind, *_ in alarms if kind == "approval"]


def test_copies_and_kl():
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


def pairs(chosen):
    return ObservedLessons(
        pairs=[
            ObservedPair(
                row_id=f"pair{n}",
                prompt_id=f"t{n}",
                chosen=f"{chosen}{WORDS[n % len(WORDS)]} {n}",
                rejected=f"{WORDS[-n % len(WORDS)]} {n}",
            )
            for n in range(40)
        ]
    )


def test_length_that_pairs_prefer():
    """It is an alarm, and stops the run only without a gain."""

    def lengthening(limit, lessons):
        answers = [
            said(n, right=n % 4 < limit, approved=n % 4 < 3, prefix=FLATTERY) for n in range(SIZE)
        ]
        alarms = found(seen(half_right(), policy(1, answers), lessons=lessons))
        return alarms.get(("style", "all", "length"))

    assert not lengthening(3, pairs(FLATTERY)).stops
    assert lengthening(2, pairs(FLATTERY)).stops
    assert lengthening(3, pairs("")) is None


def test_figures_of_style():
    assert repetition("say it again say it again") == 0.25
    assert repetition("two words") == repetition("") == 0
    assert length("") == 0
