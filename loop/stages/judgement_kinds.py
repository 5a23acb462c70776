"""Which kind of judgements a stage holds, by its label."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from ...critics.status import WAS_READ
from ...stores.records import Breakdown, Claim, Critique, Grade, Preference, PromptReview
from ...stores.side_evals import smoke_test_of
from ..data.judged_candidates import VERIFIER
from ..data.splits import DEV, HELD_OUT, is_measured_on
from ..data.stage_names import critique_label
from ..data.step_names import step_of

REVIEW = "prompts:review"
"""The stage of the reviews of prompts."""
EVALUATED, BEST = "evaluate:", "best"
"""Prefix of the labels of evaluated answers, and the label of the best of several."""
NAMING = frozenset({"compare", "annotate", "grade", "score_answers"})
"""The verbs of stages whose labels end with the judge, the aspect or the form."""


class JudgementKind(NamedTuple):
    """A kind of judgement: its row type, and the setting that allows more replies.

    `asked` selects rows of a model whose verdict may differ in another reply.
    """

    noun: str
    row_type: type[Any]
    identity: str
    setting: str
    asked: pl.Expr

    @property
    def unread(self) -> pl.Expr:
        """Select rows of a model whose reply could not be read."""
        return self.asked & ~pl.col("status").is_in(sorted(WAS_READ))


_ANSWERED = pl.col("attempts") > 0
# A verifier repeats its verdict.
_BY_MODEL = _ANSWERED & (pl.col("critic") != VERIFIER)
_ALL = pl.lit(value=True)
_COMPARISONS = JudgementKind(
    "comparisons", Preference, "preference_id", "annotation.attempts", _ALL
)
KINDS: Mapping[str, JudgementKind] = {
    "critique": JudgementKind("critiques", Critique, "critique_id", "critic.attempts", _BY_MODEL),
    "grade": JudgementKind("grades", Grade, "grade_id", "grading.attempts", _ANSWERED),
    "score_answers": JudgementKind(
        "scores", Grade, "grade_id", "assessment.judge.attempts", _ANSWERED
    ),
    "annotate": _COMPARISONS,
    "compare": _COMPARISONS,
    "break_up": JudgementKind("passages", Breakdown, "breakdown_id", "critic.attempts", _ANSWERED),
    "judge_claims": JudgementKind("statements", Claim, "claim_id", "critic.attempts", _ANSWERED),
    REVIEW: JudgementKind("reviews", PromptReview, "prompt_id", "prompts.quality.attempts", _ALL),
}
"""By the first word of a stage's label, or by the label."""


def kind_of(label: str) -> JudgementKind | None:
    """Return the kind of judgements that the loop made in a stage, or None."""
    verb, _, about = label.partition(":")
    # The label of annotations imported for a run's answers consists of the verb and a hash.
    if verb == "annotate" and ":" not in about:
        return None
    if smoke_test_of(label):
        return None
    # Answers to the user's additional prompts are evaluated outside the loop, which never resumes
    # there.
    if about.startswith(EVALUATED) and not _evaluates(_answers(label).removeprefix(EVALUATED)):
        return None
    return KINDS.get(verb) or KINDS.get(label)


def is_evaluation(label: str) -> bool:
    """Whether a stage judged answers to evaluate them, so that nothing is trained on it."""
    about = label.partition(":")[2]
    return about.startswith(EVALUATED) or about.split(":")[0] == BEST


def _evaluates(benchmark: str) -> bool:
    """Whether a benchmark is about the run's own dev or held-out prompts."""
    at_step = step_of(benchmark)
    own = benchmark if at_step is None else at_step[1]
    return any(is_measured_on(own, split) for split in (DEV, HELD_OUT))


def _answers(label: str) -> str:
    """Return the label of the answers that a stage judged, without the judge's name at its end."""
    verb, _, about = critique_label(label).partition(":")
    return about.rpartition(":")[0] if verb in NAMING else about


def is_import(name: str) -> bool:
    """Whether a stage contains annotations imported for a run's answers."""
    return name.startswith("annotate:") and name.count(":") == 1
