"""The teacher of the tiny world: a script that replaces the strong model behind M_0's lessons.

It knows the world's prompts by heart: it criticises an answer without an error, with the reference
or without, and corrects its faults. It reads the questions of the templates `tiny` and answers in
their form, so everything around it works as with real models.
"""

import json
import random
import re

from ...policies.engines.engine import Request, Sampling
from ...stores.chat_markers import WORD_JOINER
from .exercises import add_opener
from .human import exercise_of
from .nouns import PerfectVerdict

SHOWN = re.compile(
    r"\[Instruction\] (?P<instruction>.*?)\n\[Answer\] (?P<answer>.*?)\n"
    r"(?:\[Reference\] .*?\n)?(?P<task>Rate |Choose |\[Feedback\] )",
    re.DOTALL,
)


def teacher(request: Request, sampling: Sampling) -> str:  # noqa: ARG001 (no chance in it)
    """Criticise the answer that a question shows, or give a better one.

    Raises:
        ValueError: if the question is not from the templates `tiny`.
        UnknownExerciseError: if its prompt is not from the tiny world.
    """
    found = SHOWN.search(request.messages[-1].content.replace(WORD_JOINER, ""))
    if found is None:
        raise ValueError(
            "the prompt is not a question of the templates tiny, which the teacher reads"
        )
    exercise, answer = exercise_of(found["instruction"]), found["answer"]
    verdict = exercise.judge(answer)
    if not found["task"].startswith("["):
        return critique_text(verdict)
    rng = random.Random(f"tiny teacher {request.seed}")
    return answer if verdict.good else add_opener(exercise, exercise.mend(answer), rng)


def critique_text(verdict: PerfectVerdict) -> str:
    """Return a critique: one remark a line, then the dictionary of ratings."""
    remarks = [f"{r.aspect}: {r.comment} {r.mark}" for r in verdict.remarks]
    return "\n".join([*remarks, json.dumps({r.aspect: r.mark for r in verdict.remarks})])
