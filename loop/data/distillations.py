"""Rows of critique distillation: refinements with the prompt that their teacher saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...stores.frames import rows_frame
from ...stores.keys import row_id
from ...stores.records import Candidate, Distillation, Message, Prompt
from .training_rows import Made, Origin, Outcome, yield_rows

REFINED, PASSED = "refined", "refined_success"
"""The rules: every whole refinement, or those that the critic passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinements:
    """What a teacher wrote when it saw more than the prompt, and what it saw.

    `judged` has a row for each of the candidates: `usable`, `rated` and `learned` say if it is a
    whole answer, was judged as the rule wants it, and is learned; `ratings` are its own.
    """

    candidates: Sequence[Candidate]
    shown: Mapping[str, tuple[Message, ...]]
    judged: pl.DataFrame


def distillations(found: Refinements, prompts: Sequence[Prompt], by: Origin) -> Made:
    """Return the refinements that are learned, each with both of its prompts.

    A text that was drawn several times is learned as often: how often the teacher says it is what
    the policy learns.
    """
    asked = {prompt.prompt_id: prompt.messages for prompt in prompts}
    learned = dict(found.judged.filter("learned").select("candidate_id", "ratings").iter_rows())
    made = [
        Distillation(
            distillation_id=row_id("dist", [by.rule, by.iteration, z.candidate_id]),
            prompt_id=z.prompt_id,
            iteration=by.iteration,
            candidate_id=z.candidate_id,
            rule=by.rule,
            ratings=tuple(learned[z.candidate_id]),
            prompt=asked[z.prompt_id],
            teacher_prompt=found.shown[z.candidate_id],
            completion=(Message(role="assistant", content=z.text),),
        )
        for z in found.candidates
        if z.candidate_id in learned
    ]
    rows = rows_frame(Distillation, made)
    return Made(rows, _yields(found.judged, rows_frame(Prompt, prompts), rows, by))


def _yields(
    judged: pl.DataFrame, prompts: pl.DataFrame, rows: pl.DataFrame, by: Origin
) -> pl.DataFrame:
    """Return how many distillations each prompt gave, or why none."""
    any_of = judged.group_by("prompt_id").agg(pl.col("usable").any(), pl.col("rated").any())
    known = prompts.select("prompt_id").join(
        any_of, on="prompt_id", how="left", maintain_order="left"
    )
    reasons = (
        (pl.col("usable").is_null(), Outcome.NO_REFINEMENT),
        (~pl.col("usable"), Outcome.NONE_USABLE),
        (~pl.col("rated"), Outcome.NONE_RATED),
    )
    done, otherwise = Outcome.DISTILLED, Outcome.NO_POSITIVE
    return yield_rows(known, rows, by, success=done, reasons=reasons, otherwise=otherwise)
