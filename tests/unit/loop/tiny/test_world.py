"""The tiny world: prompts, demonstrations and the recipe that builds its models."""

import random
from collections.abc import Iterator

import pytest
from tiny_lessons import judgement, lesson

from lpfloop.critics.checks import fulfils
from lpfloop.loop.tiny.exercises import TinyPrompt, add_opener
from lpfloop.loop.tiny.instructions import Instruction
from lpfloop.loop.tiny.people import (
    Biography,
)
from lpfloop.loop.tiny.world import prompts


@pytest.fixture(scope="module")
def train() -> tuple[TinyPrompt, ...]:
    return prompts("train")


@pytest.fixture(scope="module")
def held_out() -> tuple[TinyPrompt, ...]:
    return prompts("held-out")


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)


def test_held_out_shares_nothing(
    train: tuple[TinyPrompt, ...], held_out: tuple[TinyPrompt, ...]
) -> None:
    assert len({p.text for p in train}) == len(train)
    assert not {p.text for p in train} & {p.text for p in held_out}
    persons = [
        {(p.exercise.first, p.exercise.last) for p in split if isinstance(p.exercise, Biography)}
        for split in (train, held_out)
    ]
    assert not persons[0] & persons[1]
    items = [
        {p.exercise.items for p in split if isinstance(p.exercise, Instruction)}
        for split in (train, held_out)
    ]
    assert not items[0] & items[1]


def test_lessons_show_no_held_out_prompt(
    held_out: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    texts = {p.text for p in held_out}
    shown = {item.user for item in (lesson(rng, kind="answer") for _ in range(1_000))}
    shown |= {item.user for item in (judgement(rng) for _ in range(500))}
    assert not shown & texts


def cases(
    split: tuple[TinyPrompt, ...], rng: random.Random
) -> Iterator[tuple[TinyPrompt, str, str, str]]:
    for prompt in split:
        exercise = prompt.exercise
        yield (
            prompt,
            add_opener(exercise, exercise.careful(rng), rng),
            add_opener(exercise, exercise.careless(rng), rng),
            add_opener(exercise, exercise.stray(rng), rng),
        )


def test_careful_pass_careless_fail(train: tuple[TinyPrompt, ...], rng: random.Random) -> None:
    for prompt, careful, careless, stray in cases(train[:900], rng):
        assert prompt.exercise.judge(careful).good, (prompt.text, careful)
        assert not prompt.exercise.judge(careless).good, (prompt.text, careless)
        assert not prompt.exercise.judge(stray).good, (prompt.text, stray)
        if prompt.checks:
            assert all(fulfils(careful, c) for c in prompt.checks), (prompt.text, careful)
            assert not all(fulfils(careless, c) for c in prompt.checks), (prompt.text, careless)
