"""Reading the score of one completion, in one of the text forms.

The judge writes a critique and one score. Scores that differ are contradictory, and so is a score
that the critique denies. A score that a judged text states in the same form is an echo. A score is
the written number: one beyond the scale, or of another scale, is unread.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...stores.records import SCORED
from ..judge import MARK_FIRST, ExampleReply, Expected, HeardReply, Reading, absent
from ..quoting import fault_of, holds, require_undisputed, visible_text, without
from ..reply_schema import ReplySchema, comment, object_of, one_of
from ..status import Status, UnreadError
from ..text_forms import (
    SCORE_TEXTS,
    ScoreForm,
    WrittenScore,
    with_score,
    written_scores,
)
from .grade_reply import Appraisal, rating_of
from .graded_aspects import LOWEST, GradeScale

CRITIQUE_FIRST = (
    "Write the critique first. Then write the line {mark} by itself, and below it the line with "
    "the score."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallScore(Expected[Appraisal]):
    """The expected reply: a critique of one completion, and its score."""

    scale: GradeScale
    form: ScoreForm = "line"

    @property
    def schema(self) -> ReplySchema:
        """The schema of an object: the critique, then the score, a whole number."""
        score = one_of(range(LOWEST, self.scale.best + 1))
        return object_of({"critique": comment(), "score": score})

    def read_object(
        self, said: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Appraisal]]:
        """Read the critique and the score.

        Raises:
            UnreadError: if the critique is empty, or a judged text states the score, too.
        """
        rating, critique = float(said["score"]), said["critique"].strip()
        if not critique:
            raise UnreadError(Status.INCOMPLETE)
        if holds(judged, [f"score: {rating:g}"]) or self._is_echoed(rating, judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=critique))]

    @property
    def nothing(self) -> tuple[Appraisal]:
        """No score."""
        return (Appraisal(),)

    @property
    def place(self) -> str:
        """The place of the line with the mark: below the critique, or before an object with it."""
        return MARK_FIRST if self.form == "json" else CRITIQUE_FIRST

    def read(self, reply: HeardReply) -> list[Reading[Appraisal]]:
        """Read a critique in words, and the one score.

        Raises:
            UnreadError: if the judge's score, or its critique, is missing.
        """
        found = self._written_scores(reply.text)
        if not found:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if self.form == "line" and len(found) > 1:
            raise UnreadError(Status.DUPLICATE)
        if not found[0].text.strip():
            raise UnreadError(Status.INCOMPLETE)
        rating = self._agreed_score(found)
        around = without(reply.text, found)
        critique = f"{reply.before}{around}".strip()
        if not (critique or self.form == "json"):
            raise UnreadError(Status.INCOMPLETE)
        if fault := fault_of(reply.text, found):
            raise UnreadError(fault)
        said = reply.text.strip() if self.form == "json" else critique
        require_undisputed(said if self.form == "json" else around, {rating})
        if self._is_echoed(rating, reply.judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=said))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a critique with its score."""
        score = draw.randint(LOWEST, self.scale.best)
        return ExampleReply(*with_score(self.form, score, self.scale.best, reason))

    def _written_scores(self, text: str) -> list[WrittenScore]:
        return list(written_scores(self.form, text))

    def _agreed_score(self, found: Sequence[WrittenScore]) -> float:
        """Return the score that all statements agree on.

        Raises:
            UnreadError: if they do not agree, one is off the scale, or the aspect does not apply.
        """
        ratings = {rating_of(each.text, self.scale) for each in found}
        if len(ratings) > 1:
            raise UnreadError(Status.CONTRADICTORY)
        rating = ratings.pop()
        if rating is None:
            raise UnreadError(Status.NOT_APPLICABLE)
        return rating

    def _is_echoed(self, rating: float, judged: Sequence[str]) -> bool:
        """Whether a judged text states the score, too, in the same form or another dress of it."""
        dressed = "score: {score:g}" if self.form == "json" else SCORE_TEXTS[self.form].dressed
        return (dressed is not None and holds(judged, [dressed.format(score=rating)])) or any(
            rating in self._stated_scores(text) for text in judged
        )

    def _stated_scores(self, text: str) -> set[float | None]:
        """Return the scores that a judged text states."""
        try:
            return {
                rating_of(each.text, self.scale)
                for each in self._written_scores(visible_text(text))
            }
        except UnreadError:
            return set()
