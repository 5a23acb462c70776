"""What a stage of judgements is, by its label, and which later stages were made of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ...critics.judge import WAS_READ
from ...stores.beside import smoked
from ...stores.records import Breakdown, Claim, Critique, Grade, Preference, PromptReview
from ..data.judged_candidates import VERIFIER
from ..data.splits import HELD_OUT, is_measured_on
from ..data.stage_names import named
from .review_prompts import QUALITY, REVIEW

Place = tuple[int, str]
"""A stage, by its iteration and label."""
EVALUATED, BEST = "evaluate:", "best"
"""How the labels of answers begin that are evaluated, and that of the best of several."""
MEASURED = {
    "critique": ("measure:",),
    "compare": ("assess:",),
    "break_up": ("judge_claims:evaluate:", "facts:"),
    "judge_claims": ("facts:",),
    "score_answers": ("scores:",),
}
"""How the labels begin of what is made of judged answers, by what judged them."""
DRAWN = frozenset({"sample", "complete"})
"""The first words of stages that draw answers to prompts, whatever was said of others."""
NAMING = frozenset({"compare", "annotate", "grade", "score_answers"})
"""The first words of stages whose labels end with who judged, in what, or by which form."""
ABOUT = frozenset({"reward", "critique", "grade", "annotate"})
"""The first words of stages that are about answers, which their labels name."""


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
    answers = _answers(label).removeprefix(EVALUATED)
    if about.startswith(EVALUATED) and not is_measured_on(answers, HELD_OUT):
        return None
    return next((kind for kind in KINDS if {verb, label} & {*kind.stages}), None)


def is_evaluation(label: str) -> bool:
    """Whether a stage judged answers to evaluate them, so that nothing is trained on it."""
    about = label.partition(":")[2]
    return about.startswith(EVALUATED) or about.split(":")[0] == BEST


def made_of(place: Place, stages: Sequence[Place], *, prompts_change: bool) -> list[Place]:
    """Return which of the planned stages, in their order, were made of a stage of judgements.

    `prompts_change` says of reviews that other prompts are taken now than were before.
    """
    iteration, label = place
    if label == REVIEW:
        later = [(number, name) for number, name in stages if number and not is_import(name)]
        return [(iteration, QUALITY), *(later if prompts_change else ())]
    names = [name for number, name in stages if number == iteration]
    after = names[names.index(label) + 1 :]
    verb = label.partition(":")[0]
    if is_evaluation(label):
        return [(iteration, name) for name in after if _are_numbers(verb, label, name)]
    found = set[str]()
    for name in after:
        if not is_import(name) and _reads(name, found):
            found.add(name)
    return [(iteration, name) for name in after if name in found]


def _are_numbers(verb: str, label: str, name: str) -> bool:
    """Whether a stage holds the numbers that are made of a stage of judged answers."""
    answers = _answers(label)
    if answers.split(":")[0] == BEST:
        return name.startswith(MEASURED[verb])
    return name in {made + answers.removeprefix(EVALUATED) for made in MEASURED[verb]}


def _answers(label: str) -> str:
    """Return the label of the answers that a stage judged; a comparison's ends with who judged."""
    verb, _, about = named(label).partition(":")
    return about.rpartition(":")[0] if verb in NAMING else about


def _reads(name: str, made: set[str]) -> bool:
    """Whether a later stage depends on judgements, or on what was made of them."""
    verb = name.partition(":")[0]
    if verb in DRAWN:
        return False
    return verb not in ABOUT or bool(made.intersection(_answers(name).split("+")))


def is_import(name: str) -> bool:
    """Whether a stage holds what was imported of a run's answers."""
    return name.startswith("annotate:") and name.count(":") == 1
