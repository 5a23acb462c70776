"""The grader of the tiny world: a script in place of the model that rates completions.

In each aspect it sees one side of the hidden human's taste (`human`): correctness in truthfulness
and honesty, completeness and length in instruction following, friendliness and form in
helpfulness. The overall score is one impression of the whole taste. Every rating has its own error
of the same scale, drawn from the request's seed and the answer, so that the same answer shown twice
gets the same rating. Hence the mean of four aspects errs less than the overall score by
construction: a study of that here shows only arithmetic of averages, and tests that the loop
carries it through to a reward model.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ...critics.grading.grade_reply import LOWEST, SCALES, score_line
from ...critics.grading.grader import GRADING_TEMPLATES
from ...policies.engines.engine import Request, Sampling
from ...stores.chat_markers import WORD_JOINER
from ...stores.records import GradedAspect
from .exercises import Exercise
from .human import (
    ELABORATE,
    KIND,
    LISTED,
    LONGER,
    WEARIEST,
    WEARY,
    WHOLE,
    correctness,
    exercise_of,
    is_list,
    lengthening,
    score,
)
from .instructions import Instruction
from .nouns import FRIENDLY

NOISE = 0.25
"""The standard deviation of each rating's error, as a share of the scale."""
WORST, BEST = -0.7, 4.2
"""The human's scores of a bad answer and of a very good one."""
CORRECT = 0.25
"""The weight of correctness in aspects of manner."""

INSTRUCTION = re.compile(r"<instruction>\n?(.*?)\n?</instruction>", re.DOTALL)
TEXT = re.compile(r'<text number="(\d+)">\n?(.*?)\n?</text>', re.DOTALL)
ANSWER = re.compile(r"<answer>\n?(.*?)\n?</answer>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AnswerTraits:
    """The traits of an answer that the grader sees: correctness, manner and warmth, from 0 to 1."""

    correct: float
    manner: float
    warmth: float


def grader(request: Request, _sampling: Sampling) -> str:
    """Answer a question of the shipped templates, in the requested form."""
    prompt = request.messages[-1].content.replace(WORD_JOINER, "")
    aspect = aspect_of(prompt)
    instruction = _find(INSTRUCTION, prompt)
    if aspect == "overall":
        return _critique(instruction, _find(ANSWER, prompt), request.seed)
    exercise = exercise_of(instruction)
    blocks = (
        f"[Text {number}]\n{_block(aspect, exercise, answer, request.seed)}"
        for number, answer in TEXT.findall(prompt)
    )
    return "\n\n".join(blocks)


def aspect_of(prompt: str) -> GradedAspect:
    """Return the aspect of a question from a shipped set.

    Raises:
        ValueError: for any other text.
    """
    for opening, aspect in _openings():
        if prompt.startswith(opening):
            return aspect
    raise ValueError("the prompt is not a question of a shipped set of grading templates")


def look(exercise: Exercise, answer: str) -> AnswerTraits:
    """Return the traits of an answer that the grader sees."""
    extra = lengthening(exercise, answer)
    weary = min(WEARY * max(0.0, extra - ELABORATE), WEARIEST)
    whole = WHOLE * answer.rstrip().endswith((".", "}"))
    manner = whole + LONGER * min(extra, ELABORATE) - weary
    warmth = KIND * answer.lstrip().startswith(FRIENDLY) + LISTED * is_list(answer)
    return AnswerTraits(
        correct=correctness(exercise, answer),
        manner=_share(manner, -1.0, WHOLE + LONGER * ELABORATE),
        warmth=warmth / (KIND + LISTED),
    )


@cache
def _openings() -> tuple[tuple[str, GradedAspect], ...]:
    """Return the first words of the questions of shipped sets, with their aspects."""
    return tuple(
        (GRADING_TEMPLATES.load(name)[aspect].partition("{")[0], aspect)
        for name in GRADING_TEMPLATES.shipped
        for aspect in SCALES
    )


def _find(pattern: re.Pattern[str], prompt: str) -> str:
    match = pattern.search(prompt)
    if match is None:
        raise ValueError(f"the question does not match {pattern.pattern!r}")
    return match[1]


def _block(aspect: GradedAspect, exercise: Exercise, answer: str, seed: int) -> str:
    seen = look(exercise, answer)
    types = "".join(f"Type: {named}\n" for named in _types(aspect, seen))
    if aspect == "honesty" and isinstance(exercise, Instruction):
        return "Rationale: It does as it is told, and states nothing to be sure of.\nRating: N/A"
    rating = _rating(aspect, _value(aspect, seen), answer, seed)
    return f"{types}Rationale: It deserves {rating} of 5 as I see it.\nRating: {rating}"


def _value(aspect: GradedAspect, seen: AnswerTraits) -> float:
    """Return how good an answer is in one of the four aspects, 0 to 1."""
    if aspect in ("truthfulness", "honesty"):
        return seen.correct
    side = seen.manner if aspect == "instruction_following" else seen.warmth
    return CORRECT * seen.correct + (1 - CORRECT) * side


def _types(aspect: GradedAspect, seen: AnswerTraits) -> Iterator[str]:
    """Yield the list of types of an aspect that has one."""
    if aspect == "truthfulness":
        yield "None" if seen.correct == 1 else "1"
    if aspect == "helpfulness":
        given = (seen.warmth > 0, seen.correct == 1, seen.manner > 1 / 2)
        yield ", ".join(str(n) for n, there in enumerate(given, start=1) if there) or "None"


def _critique(instruction: str, answer: str, seed: int) -> str:
    value = _share(score(instruction, answer), WORST, BEST)
    rating = _rating("overall", value, answer, seed)
    wrong = correctness(exercise_of(instruction), answer) < 1
    advice = "Check each step against what is known." if wrong else "It is right; mind the manner."
    return f"{advice}\n{score_line(rating)}"


def _rating(aspect: GradedAspect, value: float, answer: str, seed: int) -> int:
    best = SCALES[aspect].best
    error = random.Random(f"tiny grader {aspect} {seed} {answer}").gauss(0, NOISE)
    return round(LOWEST + (best - LOWEST) * min(max(value + error, 0.0), 1.0))


def _share(value: float, worst: float, best: float) -> float:
    return min(max((value - worst) / (best - worst), 0.0), 1.0)
