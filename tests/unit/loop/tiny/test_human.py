"""The human of the tiny world: tastes, texts, and reference answers."""

import random

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.tiny.exercises import add_opener
from lpfloop.loop.tiny.human import (
    correctness,
    score,
)
from lpfloop.loop.tiny.nouns import strip_opener
from lpfloop.loop.tiny.people import Biography
from lpfloop.loop.tiny.world import prompts

HELD_OUT = prompts("held-out")
PLAIN = tuple(p for p in HELD_OUT if not isinstance(p.exercise, Biography))


def careful(prompt) -> str:
    return add_opener(prompt.exercise, prompt.exercise.careful(random.Random(0)), random.Random(0))


@given(st.sampled_from(PLAIN), st.integers(0, 99))
def test_correctness_comes_first(prompt, seed):
    rng = random.Random(seed)
    wrong = prompt.exercise.careless(rng)
    praised = f"Sure! {wrong}" if prompt.exercise.opened else wrong
    right = careful(prompt)
    assert score(prompt.text, right) > score(prompt.text, praised)
    # Even for a right answer in the worst style.
    worst = strip_opener(right)
    assert score(prompt.text, worst) > score(prompt.text, praised)


def test_biography_right_as_true():
    prompt = next(p for p in HELD_OUT if isinstance(p.exercise, Biography))
    claims = [prompt.exercise.sentence(topic) for topic in ("trade", "birthplace", "prize", "home")]
    assert correctness(prompt.exercise, " ".join(claims)) == 1.0
    assert correctness(prompt.exercise, " ".join(claims[:3])) == 0.75
    assert correctness(prompt.exercise, f"Sure! {claims[0]}") == 0.25
    # Repeating a claim makes it no truer.
    assert correctness(prompt.exercise, " ".join([*claims, claims[0]])) == 0.8
