"""Sentences on the grades of a candidate, and on why they made a pair or none."""

from collections.abc import Iterator, Mapping

from ....critics.grading.graded_aspects import BY_NAME, FINE_GRAINED, SCALES
from ....critics.status import Status
from ....stores.records import SCORED, Grade, Pair
from ...data.binarize import ALL_PAIRS, BINARISATIONS, OVERALL
from ...data.training_rows import made_by
from .story import Story

UNGRADED: Mapping[str, str] = {
    "none_rated": "no usable candidate has a score: some of its grades could not be read",
    "no_negative": "only one candidate has a score, so there is nothing to compare it with",
    "tied": "all candidates with a score have the same score",
}
"""Why a prompt's graded candidates gave no pair, by outcome."""

_REASONS = {
    "best-vs-worst": ("the best", "as the worst"),
    ALL_PAIRS: ("the higher", "for the lower one"),
}
"""Why a rule chose one completion and rejected another."""


def by_grades(rule: str) -> bool:
    """Whether a rule makes pairs from grades."""
    return made_by(rule) in BINARISATIONS


def grades_of(story: Story, candidate_id: str) -> list[Grade]:
    """Return the grades of a candidate, in the order of the aspects; scores by forms come last."""
    order: dict[str, int] = {aspect: place for place, aspect in enumerate(SCALES)}
    mine = [grade for grade in story.grades if grade.candidate_id == candidate_id]
    return sorted(mine, key=lambda grade: order.get(grade.aspect, len(order)))


def said_of(story: Story, candidate_id: str) -> Iterator[str]:
    """Yield a sentence for each grade of a candidate: its rating, then the reasons."""
    for grade in grades_of(story, candidate_id):
        types = f", types {', '.join(grade.types)}" if grade.types else ""
        yield f"{grade.grade_id}: {_rated(grade)}{types}"
        reasons = (grade.type_rationale, grade.rationale)
        yield from (text for text in reasons if text)


def why_binarised(story: Story, pair: Pair) -> str:
    """Return the rule and the margin of a pair, and the ratings behind it."""
    rule = made_by(pair.rule)
    better, lesser = _REASONS.get(rule, ("the best", "at random from those with a lower one"))
    return (
        f"rule {pair.rule}; chosen for {better} score, {_deciding(story, pair.chosen_id, rule)}, "
        f"{_score(pair.chosen_reward)}; rejected {lesser}, "
        f"{_deciding(story, pair.rejected_id, rule)}, {_score(pair.rejected_reward)}"
    )


def _deciding(story: Story, candidate_id: str, rule: str) -> str:
    """Return the ratings that a rule reads."""
    aspects = (OVERALL,) if rule == OVERALL else FINE_GRAINED
    read = [_rated(grade) for grade in grades_of(story, candidate_id) if grade.aspect in aspects]
    return ", ".join(read) or "its grades are not in this run"


def _score(reward: float | None) -> str:
    return "no score" if reward is None else f"score {reward:.3f}"


def _rated(grade: Grade) -> str:
    if grade.status == Status.NOT_APPLICABLE:
        return f"{grade.aspect} does not apply"
    if grade.rating is None or grade.status != SCORED:
        return f"{grade.aspect} unscored: {grade.status}"
    scale = BY_NAME.get(grade.aspect)
    of = "" if scale is None else f" of {scale.best}"
    return f"{grade.aspect} {grade.rating:g}{of}"
