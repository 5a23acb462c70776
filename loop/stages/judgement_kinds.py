"""Which kind of judgements a stage holds, by its label."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from ...critics.status import WAS_READ
from ...stores.beside import smoked
from ...stores.records import Breakdown, Claim, Critique, Grade, Preference, PromptReview
from ..data.judged_candidates import VERIFIER
from ..data.splits import DEV, HELD_OUT, is_measured_on
from ..data.stage_names import named
from ..data.step_names import step_of
from .review_prompts import REVIEW

EVALUATED, BEST = "evaluate:", "best"
"""How the labels of answers begin that are evaluated, and that of the best of several."""
NAMING = frozenset({"compare", "annotate", "grade", "score_answers"})
"""The first words of stages whose labels end with who judged, in what, or by which form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementKind:
    """Judgements of one kind: their stages and rows, and which of these could not be read."""

    noun: str
    stages: tuple[str, ...]
    row_type: type[Any]
    identity: str
    setting: str
    asked: pl.Expr

    @property
    def unread(self) -> pl.Expr:
        """Whether a row was asked for and not read."""
        return self.asked & ~pl.col("status").is_in(sorted(WAS_READ))


KINDS = (
    JudgementKind(
        noun="critiques",
        stages=("critique",),
        row_type=Critique,
        identity="critique_id",
        setting="critic.attempts",
        # The verifier says the same again; of an answer that failed nobody was asked.
        asked=(pl.col("attempts") > 0) & (pl.col("critic") != VERIFIER),
    ),
    JudgementKind(
        noun="grades",
        stages=("grade",),
        row_type=Grade,
        identity="grade_id",
        setting="grading.attempts",
        asked=pl.col("attempts") > 0,
    ),
    JudgementKind(
        noun="scores",
        stages=("score_answers",),
        row_type=Grade,
        identity="grade_id",
        setting="assessment.judge.attempts",
        asked=pl.col("attempts") > 0,
    ),
    JudgementKind(
        noun="comparisons",
        stages=("annotate", "compare"),
        row_type=Preference,
        identity="preference_id",
        setting="annotation.attempts",
        asked=pl.lit(value=True),
    ),
    JudgementKind(
        noun="passages",
        stages=("break_up",),
        row_type=Breakdown,
        identity="breakdown_id",
        setting="critic.attempts",
        asked=pl.col("attempts") > 0,
    ),
    JudgementKind(
        noun="statements",
        stages=("judge_claims",),
        row_type=Claim,
        identity="claim_id",
        setting="critic.attempts",
        # A model of natural language inference says the same again, without a reply.
        asked=(pl.col("attempts") > 0) & (pl.col("text") != ""),
    ),
    JudgementKind(
        noun="reviews",
        stages=(REVIEW,),
        row_type=PromptReview,
        identity="prompt_id",
        setting="prompts.quality.attempts",
        asked=pl.lit(value=True),
    ),
)


def kind_of(label: str) -> JudgementKind | None:
    """Return the kind of judgements that the loop made in a stage, or None."""
    verb, _, about = label.partition(":")
    # What was imported of a run's answers is called after nothing but its hash.
    if verb == "annotate" and ":" not in about:
        return None
    if smoked(label):
        return None
    # Answers to prompts of the user's own are evaluated beside the loop, which never returns there.
    if about.startswith(EVALUATED) and not _examines(_answers(label).removeprefix(EVALUATED)):
        return None
    return next((kind for kind in KINDS if {verb, label} & {*kind.stages}), None)


def is_evaluation(label: str) -> bool:
    """Whether a stage judged answers to evaluate them, so that nothing is trained on it."""
    about = label.partition(":")[2]
    return about.startswith(EVALUATED) or about.split(":")[0] == BEST


def _examines(benchmark: str) -> bool:
    """Whether a benchmark is about the run's own dev or held-out prompts."""
    at_step = step_of(benchmark)
    own = benchmark if at_step is None else at_step[1]
    return any(is_measured_on(own, split) for split in (DEV, HELD_OUT))


def _answers(label: str) -> str:
    """Return the label of the answers that a stage judged; a comparison's ends with who judged."""
    verb, _, about = named(label).partition(":")
    return about.rpartition(":")[0] if verb in NAMING else about


def is_import(name: str) -> bool:
    """Whether a stage holds what was imported of a run's answers."""
    return name.startswith("annotate:") and name.count(":") == 1
