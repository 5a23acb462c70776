"""The training data of M_0 and the reward model: one-turn conversations, and preference pairs.

Four kinds of conversation, as in Table 1 of RLRF: an instruction and its answer; an answer and its
critique, without and with the reference; an answer with its critique, and the refined answer. The
user turns are rendered through the same template files that the loop uses.
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from lpfloop.critics.guard import render
from lpfloop.loop.tiny.arithmetic import ASPECT as LOGIC
from lpfloop.loop.tiny.arithmetic import LARGEST
from lpfloop.loop.tiny.exercises import Exercise, add_opener
from lpfloop.loop.tiny.instructions import PEOPLE, TOWNS, WORDS
from lpfloop.loop.tiny.nouns import FRIENDLY, TASKS, Task
from lpfloop.loop.tiny.people import ASPECT as FACTUALITY
from lpfloop.loop.tiny.people import FIRST_NAMES, PLACES, SURNAMES, TEACHERS, TRADES, Biography
from lpfloop.loop.tiny.teacher import critique_text
from lpfloop.loop.tiny.world import draw

LessonKind = Literal["answer", "critique", "critique with reference", "reflection", "drill"]

TEMPLATES = files("lpfloop") / "critics" / "templates" / "tiny"
ASPECTS: dict[Task, str] = {"math": LOGIC, "facts": FACTUALITY}

MIX: dict[Task, dict[LessonKind, float]] = {
    "math": {"answer": 0.44, "critique": 0.08, "critique with reference": 0.26, "reflection": 0.22},
    "facts": {
        "answer": 0.40,
        "critique": 0.12,
        "critique with reference": 0.26,
        "reflection": 0.22,
    },
    "general": {"answer": 0.40, "critique": 0.35, "reflection": 0.25},
}
TASK_SHARES: dict[Task, float] = {"math": 0.40, "facts": 0.22, "general": 0.38}
# Judged answers: some are good, some have the habitual slip, the rest another one.
JUDGED_CAREFUL, JUDGED_CARELESS = 0.42, 0.33
MENDED_SHARE = 0.93
# Abstracts that contradict memory: without them, the critic would judge by its memory of abstracts.
RETOLD_SHARE = 0.15
COPIED = (*WORDS, *PEOPLE, *FIRST_NAMES, *SURNAMES, *PLACES, *TRADES, *TEACHERS, *TOWNS)
NUMBERS_COPIED = 0.3
COPYING_SHARE, HALF = 0.5, 0.5

STYLE_WEIGHT = 1.6
CORRECT_WEIGHT: dict[Task, float] = {"math": 0.1, "facts": 0.7, "general": 0.7}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One user turn and the reply that M_0 learns."""

    kind: LessonKind
    task: Task
    user: str
    reply: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Two answers to one prompt, the preferred one first."""

    task: Task
    user: str
    preferred: str
    other: str


@cache
def template(name: str) -> str:
    """Read one of the tiny world's templates."""
    return (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")


def critique_prompt(exercise: Exercise, task: Task, answer: str, *, with_reference: bool) -> str:
    """Render the feedback model's prompt on `answer`."""
    values = {"instruction": exercise.text, "answer": answer}
    if task == "general":
        return render(template("critique_general"), values)
    values["aspect"] = ASPECTS[task]
    if with_reference and exercise.reference:
        values["reference"] = exercise.reference
        return render(template("critique_reference"), values)
    return render(template("critique_single"), values)


def reflection_prompt(exercise: Exercise, answer: str, feedback: str) -> str:
    """Render the policy's prompt to refine `answer`."""
    values = {"instruction": exercise.text, "answer": answer, "feedback": feedback}
    return render(template("reflection"), values)


def demonstration(exercise: Exercise, rng: random.Random) -> str:
    """Answer carefully or carelessly, as often as the exercise's kind has it."""
    careful = rng.random() < exercise.care_share
    return add_opener(exercise, exercise.careful(rng) if careful else exercise.careless(rng), rng)


def judged_answer(exercise: Exercise, rng: random.Random) -> str:
    """Draw an answer to be judged: good, habitually wrong, or otherwise wrong."""
    chance = rng.random()
    if chance < JUDGED_CAREFUL:
        body = exercise.careful(rng)
    elif chance < JUDGED_CAREFUL + JUDGED_CARELESS:
        body = exercise.careless(rng)
    else:
        body = exercise.stray(rng)
    return add_opener(exercise, body, rng)


def lesson(
    rng: random.Random, *, task: Task | None = None, kind: LessonKind | None = None
) -> Lesson:
    """Draw one lesson from the training part of the world."""
    task = task or rng.choices(TASKS, [TASK_SHARES[t] for t in TASKS])[0]
    mix = MIX[task]
    kind = kind or rng.choices(tuple(mix), tuple(mix.values()))[0]
    exercise = draw(task, rng, out=False)
    if kind == "answer":
        return Lesson(kind, task, exercise.text, demonstration(exercise, rng))
    if kind == "critique with reference" and rng.random() < RETOLD_SHARE:
        exercise = (
            exercise.with_other_abstract(rng) if isinstance(exercise, Biography) else exercise
        )
    answer = judged_answer(exercise, rng)
    verdict = exercise.judge(answer)
    feedback = critique_text(verdict)
    if kind == "reflection":
        refined = answer
        if not verdict.good and rng.random() < MENDED_SHARE:
            refined = add_opener(exercise, exercise.mend(answer), rng)
        return Lesson(kind, task, reflection_prompt(exercise, answer, feedback), refined)
    if kind == "critique":
        feedback = critique_text(exercise.recall(answer))
    asked = critique_prompt(
        exercise, task, answer, with_reference=kind == "critique with reference"
    )
    return Lesson(kind, task, asked, feedback)


def drill(rng: random.Random) -> Lesson:
    """Draw an exercise in basic skills of critique and refinement: copying, or comparing."""
    return copying(rng) if rng.random() < COPYING_SHARE else comparing(rng)


def comparing(rng: random.Random) -> Lesson:
    """Draw a drill: are two numbers equal? In the wording of critiques."""
    has = rng.randint(1, LARGEST)
    needs = has
    if rng.random() < HALF:
        near = (has + 1, has - 1, has + 10, has - 10)
        needs = rng.choice([n for n in near if 0 < n <= LARGEST])
        needs = needs if rng.random() < HALF else rng.randint(1, LARGEST)
    verdict = "right" if has == needs else "wrong"
    return Lesson("drill", "math", f"{has}. {needs}.", f"has {has}, needs {needs}: {verdict}.")


def copying(rng: random.Random) -> Lesson:
    """Draw a drill: repeat a text. Comparing, correcting and sorting all begin with copying."""
    pieces = [
        str(rng.randint(2, LARGEST)) if rng.random() < NUMBERS_COPIED else rng.choice(COPIED)
        for _ in range(rng.randint(4, 14))
    ]
    text = rng.choice((" ", ", ")).join(pieces)
    return Lesson("drill", "general", text, text)


def judgement(
    rng: random.Random, *, task: Task | None = None, exercise: Exercise | None = None
) -> Judgement:
    """Draw two answers and prefer one as people do: by style first, by visible substance next."""
    task = task or rng.choice(TASKS)
    exercise = exercise or draw(task, rng, out=False)
    first = second = judged_answer(exercise, rng)
    while first == second:
        second = judged_answer(exercise, rng)
    margin = appeal(exercise, task, first) - appeal(exercise, task, second)
    if rng.random() > 1 / (1 + math.exp(-margin)):
        first, second = second, first
    return Judgement(task, exercise.text, first, second)


def appeal(exercise: Exercise, task: Task, answer: str) -> float:
    """How much people like an answer (the utility of a Bradley-Terry model)."""
    friendly = answer.startswith(FRIENDLY)
    good = exercise.judge(answer).good
    return STYLE_WEIGHT * friendly + CORRECT_WEIGHT[task] * good
