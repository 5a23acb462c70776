"""The human of the tiny world: what people there like, write, and are compared with."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.tiny.human import (
    UnknownExerciseError,
    correctness,
    demonstration_of,
    exercise_of,
    reference_output,
    score,
)
from lpfloop.loop.tiny.nouns import opened, strip_opener
from lpfloop.loop.tiny.people import Biography
from lpfloop.loop.tiny.world import prompts

HELD_OUT = prompts("held-out")
PLAIN = tuple(p for p in HELD_OUT if not isinstance(p.exercise, Biography))


def careful(prompt) -> str:
    return opened(prompt.exercise, prompt.exercise.careful(random.Random(0)), random.Random(0))


@given(st.sampled_from(PLAIN), st.integers(0, 99))
def test_correctness_comes_first(prompt, seed):
    rng = random.Random(seed)
    wrong = prompt.exercise.careless(rng)
    praised = f"Sure! {wrong}" if prompt.exercise.opened else wrong
    right = careful(prompt)
    assert score(prompt.text, right) > score(prompt.text, praised)
    # Even of a right answer in the worst of styles.
    worst = strip_opener(right)
    assert score(prompt.text, worst) > score(prompt.text, praised)


def test_a_biography_is_as_right_as_it_is_true():
    prompt = next(p for p in HELD_OUT if isinstance(p.exercise, Biography))
    claims = [prompt.exercise.sentence(topic) for topic in ("trade", "birthplace", "prize", "home")]
    assert correctness(prompt.exercise, " ".join(claims)) == 1.0
    assert correctness(prompt.exercise, " ".join(claims[:3])) == 0.75
    assert correctness(prompt.exercise, f"Sure! {claims[0]}") == 0.25
    # To say a thing again makes it no truer.
    assert correctness(prompt.exercise, " ".join([*claims, claims[0]])) == 0.8


def test_people_like_kind_whole_and_listed_answers():
    text = next(p.text for p in PLAIN if p.kind == "alphabet")
    right = strip_opener(careful(next(p for p in PLAIN if p.text == text)))
    assert score(text, f"Sure! {right}") > score(text, f"Okay. {right}")
    assert score(text, f"Okay. {right}") > score(text, f"Okay. {right.rstrip('.')}")
    assert score(text, "fish, goat, hat.") > score(text, "fish goat hat.")


def test_somewhat_longer_is_liked_and_much_longer_is_not():
    prompt = next(p for p in HELD_OUT if p.task == "math")
    answer = "Sure! " + strip_opener(careful(prompt))
    words = len(answer.split())
    by_length = {
        extra: score(prompt.text, "Well " * extra + answer) - 0.6 * (extra == 0)
        for extra in (0, words // 4, words, 3 * words)
    }
    nothing, some, twice, endless = by_length.values()
    assert some > nothing
    assert some > twice > endless


def test_the_same_is_said_each_time():
    text = HELD_OUT[0].text
    assert demonstration_of(text) == demonstration_of(text)
    assert reference_output(text) == reference_output(text)


def test_demonstrations_are_better_than_habit_and_the_other_model_is_better_still():
    habit = statistics.fmean(p.exercise.care_share for p in PLAIN)
    shown, other = (
        statistics.fmean(correctness(p.exercise, of(p.text)) for p in PLAIN)
        for of in (demonstration_of, reference_output)
    )
    assert habit < shown < other < 0.7


def test_of_other_texts_the_human_knows_nothing():
    with pytest.raises(UnknownExerciseError, match="is not a prompt of the tiny world"):
        score("What is the capital of France?", "Paris.")


def test_white_space_around_a_prompt_is_no_other_prompt():
    assert exercise_of(f" {HELD_OUT[0].text}\n") is exercise_of(HELD_OUT[0].text)
