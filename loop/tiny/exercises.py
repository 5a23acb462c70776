"""The exercises of the tiny world, and its prompts.

An exercise can be answered well (`careful`), with the slip that is its kind's habit (`careless`),
or with some other one (`stray`), all without the opener. It corrects answers (`mend`) and judges
them: perfectly (`judge`), or as a critic without the reference (`recall`).
"""

import random
from dataclasses import dataclass

from ...stores.records import Check, Split
from .arithmetic import Problem
from .instructions import Instruction
from .nouns import Task, opener
from .people import Biography

Exercise = Problem | Biography | Instruction


@dataclass(frozen=True, slots=True)
class TinyPrompt:
    """A prompt of the tiny world as the loop sees it; `exercise` is for the lessons of M_0 only."""

    text: str
    task: Task
    split: Split
    kind: str
    reference: str | None
    checks: tuple[Check, ...]
    exercise: Exercise

    @classmethod
    def of(cls, exercise: Exercise, task: Task, split: Split) -> "TinyPrompt":
        """Return the prompt that shows an exercise."""
        shown = (exercise.text, task, split, exercise.kind, exercise.reference, exercise.checks)
        return cls(*shown, exercise)


def add_opener(exercise: Exercise, body: str, rng: random.Random) -> str:
    """Put an opener before `body` if the exercise's answers have one."""
    return f"{opener(rng)} {body}" if exercise.opened else body
