"""The distance of a policy's style from M_0's, as one figure.

It is the mean over the figures of `style_alarms` (length, repetition) of how far each has moved, in
standard deviations of M_0's answers. It does not measure whether answers are better: a policy that
learns has to move, one that moves far without becoming better has learned how to please.
"""

from collections.abc import Mapping
from statistics import fmean

import polars as pl

from ...stores.lake import RunReader
from .observed import Observation, ObservedAnswer, ObservedLessons, ObservedPolicy, ObservedPrompt
from .style_alarms import style_changes

FEWEST = 8
"""Answers in common below which a style is not compared."""


def greedy_answers(run: RunReader, iteration: int, benchmark: str) -> ObservedPolicy:
    """Return the answers of an eval set that a policy took, by prompt."""
    eval_sets = (f"evaluate:{benchmark}", f"evaluate:{benchmark}:")
    rows = run.scan(
        "candidates",
        iteration=iteration,
        columns=("candidate_id", "prompt_id", "text"),
        stages=lambda stage: stage == eval_sets[0] or stage.startswith(eval_sets[1]),
    )
    told = rows.select("prompt_id", "candidate_id", "text").sort("prompt_id").collect()
    answers = {
        prompt: ObservedAnswer(candidate_id=identity, text=text)
        for prompt, identity, text in told.iter_rows()
    }
    return ObservedPolicy(iteration=iteration, answers=answers)


def style_drift(run: RunReader, before: ObservedPolicy, after: ObservedPolicy) -> float | None:
    """Return how far a style has moved; None if too few prompts were answered by both."""
    seen = Observation(
        checkpoint_id="",
        policy=after,
        before=[before],
        prompts=_prompts(run),
        lessons=ObservedLessons(),
        earlier=None,
        fewest=FEWEST,
    )
    changes = style_changes(seen)
    return fmean(abs(change.moved) for change in changes) if changes else None


def _prompts(run: RunReader) -> Mapping[str, ObservedPrompt]:
    rows = run.scan("prompts").select("prompt_id", "task", "family").unique("prompt_id")
    return {
        prompt: ObservedPrompt(prompt_id=prompt, task=task, family=family)
        for prompt, task, family in rows.filter(pl.col("task").is_not_null()).collect().iter_rows()
    }
