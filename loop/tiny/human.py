"""The human of the tiny world: people's answers, and how much they like answers.

Their taste is a hidden function of an answer, which no method of the loop reads: annotators
(`annotators`) approximate it, policies are optimised against the annotators' verdicts, and an
assessment uses it as the true score. Correctness comes first; then how friendly, complete and brief
an answer is. As people do (AlpacaFarm, Section 4.2), it likes lists, and answers somewhat longer
than they need be, though not much longer.
"""

import random
import re
from functools import cache
from string import ascii_uppercase
from typing import get_args

from ...stores.records import Split
from .exercises import Exercise, add_opener
from .nouns import FRIENDLY, strip_opener
from .people import Biography, sentences
from .world import prompts

CORRECT = 3.0
"""More than all of style together: a wrong answer never scores above a right one."""
KIND = 0.6
WHOLE = 0.3
LISTED = 0.3
LONGER = 1.0
ELABORATE = 0.3
"""The share of additional words that are still welcome."""
WEARY = 1.0
WEARIEST = 1.0

FEWEST_ITEMS = 3
CLAIMS = 4
"""The claims that a biography is expected to make."""
CARE_OF_OTHERS = 0.55
"""How often the reference model answers carefully."""
CARE_OF_PEOPLE = 0.2
"""The care of people's demonstrations between the world's habits (0) and perfection (1)."""
LISTS = 0.35
"""How often people, and the reference model, write a biography as a list: A., B., C."""
LIST_MARK = re.compile(r"(?:^|(?<=\s))(?:[-*]|\d+[.)]|[A-E]\.)\s")


class UnknownExerciseError(LookupError):
    """A text that is not a prompt of the tiny world, so its human cannot judge it."""


@cache
def _exercises() -> dict[str, Exercise]:
    return {p.text: p.exercise for s in get_args(Split) for p in prompts(s)}


def exercise_of(instruction: str) -> Exercise:
    """Return the exercise behind a prompt of the tiny world.

    Raises:
        UnknownExerciseError: for any other text.
    """
    try:
        return _exercises()[instruction.strip()]
    except KeyError:
        raise UnknownExerciseError(
            f"{instruction[:60]!r} is not a prompt of the tiny world, so its human cannot judge; "
            "use prompts.source=tiny, or prompts taken from there"
        ) from None


def score(instruction: str, answer: str) -> float:
    """Return how much people like an answer: about 3 to 4 if it is right, about 0 to 1 if not.

    Raises:
        UnknownExerciseError: if the instruction is not one of the tiny world's.
    """
    exercise = exercise_of(instruction)
    return CORRECT * correctness(exercise, answer) + style(exercise, answer)


def correctness(exercise: Exercise, answer: str) -> float:
    """Return 1 for a right answer and 0 for a wrong one; of a biography, the true share."""
    if not isinstance(exercise, Biography):
        return float(exercise.judge(answer).good)
    claims = [claim for claim in sentences(strip_opener(answer)) if len(claim.split()) > 1]
    true = set(claims) & set(sentences(exercise.reference))
    return len(true) / max(CLAIMS, len(claims))


def style(exercise: Exercise, answer: str) -> float:
    """Return how much people like the style of an answer."""
    extra = lengthening(exercise, answer)
    weary = min(WEARY * max(0.0, extra - ELABORATE), WEARIEST)
    return (
        KIND * answer.lstrip().startswith(FRIENDLY)
        + WHOLE * answer.rstrip().endswith((".", "}"))
        + LISTED * is_list(answer)
        + LONGER * min(extra, ELABORATE)
        - weary
    )


def lengthening(exercise: Exercise, answer: str) -> float:
    """Return the additional words as a share of those needed by a good answer; -1 if empty."""
    needed = len(exercise.careful(random.Random(0)).split()) + exercise.opened
    return len(answer.split()) / needed - 1


def is_list(answer: str) -> bool:
    """Whether an answer enumerates: by marks, numbers or letters, or by commas."""
    items = strip_opener(answer).rstrip(".").split(", ")
    return len(LIST_MARK.findall(answer)) > 1 or len(items) >= FEWEST_ITEMS


def demonstration_of(instruction: str) -> str:
    """Return people's answer, the same each time: more careful than M_0's training data.

    Raises:
        UnknownExerciseError: if the instruction is not one of the tiny world's.
    """
    exercise = exercise_of(instruction)
    care = exercise.care_share
    return example(exercise, "demonstration", care=care + CARE_OF_PEOPLE * (1 - care))


def reference_output(instruction: str) -> str:
    """Return the reference model's answer, the same each time: policies are compared with it.

    Raises:
        UnknownExerciseError: if the instruction is not one of the tiny world's.
    """
    return example(exercise_of(instruction), "another model", care=CARE_OF_OTHERS)


def example(exercise: Exercise, author: str, *, care: float) -> str:
    """Return an answer of `author`, who is careful with probability `care`."""
    rng = random.Random(f"tiny {author}: {exercise.text}")
    body = exercise.careful(rng) if rng.random() < care else exercise.careless(rng)
    if isinstance(exercise, Biography) and rng.random() < LISTS:
        claims = zip(ascii_uppercase, sentences(body), strict=False)
        body = " ".join(f"{letter}. {claim}" for letter, claim in claims)
    return add_opener(exercise, body, rng)
