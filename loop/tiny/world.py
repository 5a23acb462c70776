"""The prompts of the tiny world: three tasks, two splits that share no text."""

import random

from ...stores.records import Split
from .arithmetic import problem
from .instructions import instruction
from .nouns import TASKS, Exercise, Task, TinyPrompt
from .people import biography

SEED = 7
TRAIN_SIZE = 3_300
HELD_OUT_SIZE = 660


def draw(task: Task, rng: random.Random, *, out: bool) -> Exercise:
    """Draw an exercise of `task`, from the held-out part of the world or from the rest."""
    match task:
        case "math":
            return problem(rng, out=out)
        case "facts":
            return biography(rng, out=out)
        case "general":
            return instruction(rng, out=out)


def prompts(split: Split, *, seed: int = SEED, size: int | None = None) -> tuple[TinyPrompt, ...]:
    """Return `size` different prompts of `split`, the tasks taking turns."""
    size = size if size is not None else TRAIN_SIZE if split == "train" else HELD_OUT_SIZE
    rng = random.Random(f"tiny world {seed} {split}")
    seen: set[str] = set()
    found: list[TinyPrompt] = []
    while len(found) < size:
        task = TASKS[len(found) % len(TASKS)]
        exercise = draw(task, rng, out=split == "held-out")
        if exercise.text in seen:
            continue
        seen.add(exercise.text)
        found.append(
            TinyPrompt(
                text=exercise.text,
                task=task,
                split=split,
                kind=exercise.kind,
                reference=exercise.reference,
                checks=exercise.checks,
                exercise=exercise,
            )
        )
    return tuple(found)
