"""The judge of prompts in the tiny world: a script that knows the world's prompts by heart.

It rates the world's prompts as perfect, and names their class of the taxonomy `tiny`. Other prompts
are judged by crude signs: very few words lack a clear intention, words without vowels lack meaning,
and questions about chance lack an answer. It reads the rendered prompt of the shipped template and
answers in its form, so everything around it works as with real models.
"""

import json
import re

from ...critics.quality.prompt_review import ASPECTS
from ...policies.engines.engine import Request, Sampling
from ...stores.records import Rating
from .exercises import Exercise
from .human import UnknownExerciseError, exercise_of
from .instructions import Instruction
from .people import Biography

SHOWN = re.compile(r"<user_text>\n(.*)\n</user_text>", re.DOTALL)
CLASS = re.compile(r"^- (\w[\w -]*): ", re.MULTILINE)
WORD = re.compile(r"[^\W\d_]+")
VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
CHANCE = re.compile(r"\b(?:lottery|dice|tomorrow|next (?:week|month|year))\b", re.IGNORECASE)
FEWEST_WORDS = 3


def reviewer(request: Request, sampling: Sampling) -> str:  # noqa: ARG001 (no chance in it)
    """Answer a prompt that asks for a review."""
    question = request.messages[-1].content
    found = SHOWN.search(question)
    text = found[1] if found else question
    classes = CLASS.findall(question, found.end()) if found else []
    try:
        exercise = exercise_of(text)
        marks: tuple[Rating, ...] = (1, 1, 1)
    except UnknownExerciseError:
        exercise, marks = None, judge_text(text)
    lines = [
        f"{name}: {'good' if mark == 1 else 'bad'}."
        for name, mark in zip(ASPECTS, marks, strict=True)
    ]
    if classes:
        intention = intention_of(exercise) if exercise else classes[-1]
        lines.append(f"Class: {intention if intention in classes else classes[-1]}")
    return "\n".join([*lines, json.dumps(dict(zip(ASPECTS, marks, strict=True)))])


def judge_text(text: str) -> tuple[Rating, Rating, Rating]:
    """Return intention, semantics and answerability of a text from outside the tiny world."""
    words = WORD.findall(text)
    readable = sum(bool(VOWEL.search(word)) for word in words)
    intention: Rating = 1 if len(words) >= FEWEST_WORDS else -1
    semantics: Rating = 1 if 2 * readable > len(words) else -1
    return intention, semantics, -1 if CHANCE.search(text) else 1


def intention_of(exercise: Exercise) -> str:
    """Return an exercise's class in the taxonomy `tiny`."""
    if isinstance(exercise, Biography):
        return "life"
    if isinstance(exercise, Instruction):
        return "conversation" if exercise.family == "identity" else "instruction"
    return "mathematics"
