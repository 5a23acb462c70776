"""The prompts of the tiny world: three tasks, three splits that share no text.

Numbers, persons and word lists of the held-out split are in no other split. The dev split's are not
in training either, except persons: the held-out split leaves only one of the persons kept out of
training, so dev asks questions about the other persons that training does not ask.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache

from ...stores.records import Split
from .arithmetic import STORIES, problem
from .exercises import Exercise, TinyPrompt
from .instructions import FAMILIES, instruction
from .nouns import TASKS, Task
from .people import biographies, biography

SEED = 7
TRAIN_SIZE = 3_300
HELD_OUT_SIZE = 660
DEV_SIZE = HELD_OUT_SIZE // len(TASKS)
"""Dev prompts of a task; of facts there are fewer."""
TRIES = 1_000
"""Draws without a new exercise after which a kind counts as exhausted."""


def draw(task: Task, rng: random.Random, *, out: bool) -> Exercise:
    """Draw an exercise of `task`, from the held-out part of the world or from the rest."""
    match task:
        case "math":
            return problem(rng, out=out)
        case "facts":
            return biography(rng, out=out)
        case "general":
            return instruction(rng, out=out)


@cache
def prompts(split: Split, *, seed: int = SEED, size: int | None = None) -> tuple[TinyPrompt, ...]:
    """Return `size` different prompts of `split`, the tasks taking turns."""
    rng = random.Random(f"tiny world {seed} {split}")
    if split == "dev":
        return _dev(rng, seed)[:size]
    size = size if size is not None else TRAIN_SIZE if split == "train" else HELD_OUT_SIZE
    seen: set[str] = set()
    found: list[TinyPrompt] = []
    while len(found) < size:
        task = TASKS[len(found) % len(TASKS)]
        exercise = draw(task, rng, out=split == "held-out")
        if exercise.text not in seen:
            seen.add(exercise.text)
            found.append(TinyPrompt.of(exercise, task, split))
    return tuple(found)


def _dev(rng: random.Random, seed: int) -> tuple[TinyPrompt, ...]:
    """Return the dev prompts: the part of the held-out world that the held-out split leaves."""
    tested = {(p.task, p.exercise.items) for p in prompts("held-out", seed=seed)}
    trained_on = {p.text for p in prompts("train", seed=seed)}

    def is_free(task: Task, exercise: Exercise) -> bool:
        return (task, exercise.items) not in tested and exercise.text not in trained_on

    drawn: dict[Task, list[Exercise]] = {
        "math": _in_turns(
            [lambda s=story: problem(rng, out=True, story=s) for story in STORIES],
            lambda exercise: is_free("math", exercise),
        ),
        "facts": [person for person in biographies() if is_free("facts", person)],
        "general": _in_turns(
            [lambda f=family: instruction(rng, out=True, family=f) for family in FAMILIES],
            lambda exercise: is_free("general", exercise),
        ),
    }
    return tuple(TinyPrompt.of(each, task, "dev") for task in TASKS for each in drawn[task])


def _in_turns(
    draws: Sequence[Callable[[], Exercise]], is_free: Callable[[Exercise], bool]
) -> list[Exercise]:
    """Draw free exercises, their kinds taking turns; an exhausted kind is skipped."""
    found: dict[str, Exercise] = {}
    kinds = list(draws)
    while len(found) < DEV_SIZE:
        for kind in list(kinds):
            tries = (kind() for _ in range(TRIES))
            free = (one for one in tries if one.text not in found and is_free(one))
            if (new := next(free, None)) is None:
                kinds.remove(kind)
            elif len(found) < DEV_SIZE:
                found[new.text] = new
    return list(found.values())
