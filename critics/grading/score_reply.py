"""Reading the score of one completion: a critique in words, and below it `Overall score: 7`.

A score that the critique denies is contradictory, and a score that a judged text states in the same
words is an echo. A score is the written number: one beyond the scale, or of another scale, is
unread.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...stores.records import SCORED
from ..judge import ExampleReply, Expected, JudgeReply, Reading, absent
from ..quoting import Stated, fault_of, holds, require_undisputed, visible_text, without
from ..reply_schema import ReplySchema, comment, object_of, one_of
from ..status import Status, UnreadError
from .grade_reply import LABEL, SCORE, Appraisal, rating_of
from .graded_aspects import LOWEST, GradeScale

WRITTEN = "Overall score: {score}"
_LINE = re.compile(rf"^{LABEL}{SCORE}[*_` \t]*:(.*)$", re.IGNORECASE | re.MULTILINE)


def score_line(score: float) -> str:
    """Return the line that states a score."""
    return WRITTEN.format(score=int(score) if score == int(score) else score)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallScore(Expected[Appraisal]):
    """The expected reply: a critique of one completion, and its score."""

    scale: GradeScale

    place: ClassVar[str] = (
        "Write the critique first. Then write the line {mark} by itself, and below it the line "
        "with the score."
    )

    @property
    def schema(self) -> ReplySchema:
        """The schema of an object: the critique, then the score, a whole number."""
        score = one_of(range(LOWEST, self.scale.best + 1))
        return object_of({"critique": comment(), "score": score})

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Appraisal]]:
        """Read the critique and the score.

        Raises:
            UnreadError: if the critique is empty, or a judged text states the score, too.
        """
        rating, critique = float(document["score"]), document["critique"].strip()
        if not critique:
            raise UnreadError(Status.INCOMPLETE)
        if self._is_echoed(rating, "score", judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=critique))]

    @property
    def nothing(self) -> tuple[Appraisal]:
        """No score."""
        return (Appraisal(),)

    def read(self, reply: JudgeReply) -> list[Reading[Appraisal]]:
        """Read a critique in words, and the one score.

        Raises:
            UnreadError: if the judge's score, or its critique, is missing.
        """
        found = list(_LINE.finditer(reply.text))
        if not found:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if len(found) > 1:
            raise UnreadError(Status.DUPLICATE)
        if not found[0][1].strip():
            raise UnreadError(Status.INCOMPLETE)
        rating = rating_of(found[0][1], self.scale)
        if rating is None:
            raise UnreadError(Status.NOT_APPLICABLE)
        stated = [Stated(start=found[0].start(), end=found[0].end())]
        around = without(reply.text, stated)
        critique = f"{reply.before}{around}".strip()
        if not critique:
            raise UnreadError(Status.INCOMPLETE)
        if fault := fault_of(reply.text, stated):
            raise UnreadError(fault)
        require_undisputed(around, {rating})
        if self._is_echoed(rating, "overall score", reply.judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=critique))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a critique with its score."""
        return ExampleReply(reason, score_line(draw.randint(LOWEST, self.scale.best)))

    def _is_echoed(self, rating: float, name: str, judged: Sequence[str]) -> bool:
        """Whether a judged text states the score, too, as `name` or on such a line."""
        return holds(judged, [f"{name}: {rating:g}"]) or any(
            rating in self._find_stated_scores(visible_text(text)) for text in judged
        )

    def _find_stated_scores(self, text: str) -> set[float | None]:
        """Return the scores that a judged text states; none if one of them cannot be read."""
        try:
            return {rating_of(line[1], self.scale) for line in _LINE.finditer(text)}
        except UnreadError:
            return set()
