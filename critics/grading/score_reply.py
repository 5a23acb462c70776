"""Reading the score of one completion: a line of its own, or as published judges write it.

The judge writes a critique and one score; which form it is asked for is a setting, and another form
is not read. Scores that differ are contradictory, and so is a score that the critique denies. A
score that a judged text states in the same form is an echo. A score is the number that is written:
one beyond the scale, or of another scale, is none.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

from ...stores.records import SCORED
from ..json_objects import json_objects
from ..judge import ExampleReply, Expected, HeardReply, Reading, absent
from ..quoting import foreign, holds, require_undisputed, seen
from ..reply_schema import ReplySchema, comment, object_of, one_of
from ..status import Status, UnreadError
from .grade_reply import MARKS, SCORE, Appraisal, rating_of
from .graded_aspects import LOWEST, GradeScale

ScoreForm = Literal["line", "result", "brackets", "out_of", "json"]
"""How a score is written: `Overall score: 7`; `[RESULT] 7` (Prometheus); `Rating: [[7]]`
(MT-bench); `7 out of 10` at the end of a line that calls it a score, or has nothing else; an object
with a "score" (JustEval, WildBench)."""
SCORE_FORMS: tuple[ScoreForm, ...] = get_args(ScoreForm)
SCORE_PATH = ("score",)
CRITIQUE_FIRST = (
    "Write the critique first. Then write the line {mark} by itself, and below it the line with "
    "the score."
)
OVERALL = re.compile(rf"^{MARKS}{SCORE}[*_` \t]*:(.*)$", re.IGNORECASE | re.MULTILINE)
"""A line with the overall score."""
RESULT = re.compile(r"\[RESULT\][ \t]*:?(.*)$", re.IGNORECASE | re.MULTILINE)
BRACKETS = re.compile(r"\[\[([^\[\]\n]{0,20})\]\]")
OUT_OF = re.compile(
    r"(?<![\w./])([+-]?[0-9]{1,4}(?:\.[0-9]{1,4})?)[ \t]*(?:/|out[ \t]+of)[ \t]*([0-9]{1,4})"
    r"(?![\w/]|\.[0-9])(?=[^\w\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_CALLED = re.compile(
    r"\b(?:scores?|scored|rating|rated?|grade[ds]?|marks?|give|gave|award(?:ed)?|assign(?:ed)?|"
    r"deserves?|earns?|verdict)\b",
    re.IGNORECASE,
)
_KEYED = re.compile(r"[{}]|[\"'][ \t]*:")
"""What shows that a line belongs to an object."""
_SENTENCE = re.compile(r"(?<=[.!?;]) ")
WORDED: dict[ScoreForm, str] = {
    "line": "Overall score: {score}",
    "result": "[RESULT] {score}",
    "brackets": "Rating: [[{score}]]",
    "out_of": "Score: {score} out of {best}",
}

DRESSED: dict[ScoreForm, str] = {
    "line": "overall score: {score:g}",
    "result": "[RESULT] {score:g}",
    "brackets": "[[{score:g}]]",
}
"""By what a score is known in a judged text, whatever stands around it."""


class WrittenScore(NamedTuple):
    """What is written as a score, and where the statement stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallScore(Expected[Appraisal]):
    """What a reply must hold: a critique of one completion, and its score.

    `path` leads to the score in an object, from its outermost field.
    """

    scale: GradeScale
    form: ScoreForm = "line"
    path: tuple[str, ...] = SCORE_PATH

    @property
    def schema(self) -> ReplySchema:
        """The schema of an object with the critique ahead of the score, a whole number."""
        score = one_of(range(LOWEST, self.scale.best + 1))
        return object_of({"critique": comment(), "score": score})

    def read_object(
        self, said: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Appraisal]]:
        """Read the critique and the score.

        Raises:
            UnreadError: if there is no critique, or a judged text states the score, too.
        """
        rating, critique = float(said["score"]), said["critique"].strip()
        if not critique:
            raise UnreadError(Status.INCOMPLETE)
        if holds(judged, [f"score: {rating:g}"]) or self._echoed(rating, judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=critique))]

    @property
    def nothing(self) -> tuple[Appraisal]:
        """No score."""
        return (Appraisal(),)

    @property
    def place(self) -> str:
        """Where the line with the mark goes: below the critique, or ahead of an object with it."""
        return super(OverallScore, self).place if self.form == "json" else CRITIQUE_FIRST

    def read(self, reply: HeardReply) -> list[Reading[Appraisal]]:
        """Read a critique in words, and the one score.

        Raises:
            UnreadError: if there is no score that is the judge's own, or no critique.
        """
        found = list(self._written(reply.text))
        if not found:
            raise UnreadError(absent(reply.text, Status.MISSING))
        first, last = found[0], found[-1]
        if self.form == "line" and len(found) > 1:
            raise UnreadError(Status.DUPLICATE)
        if not first.text.strip():
            raise UnreadError(Status.INCOMPLETE)
        rating = self._agreed(found)
        around = _without(reply.text, found)
        critique = f"{reply.before}{around}".strip()
        if not (critique or self.form == "json"):
            raise UnreadError(Status.INCOMPLETE)
        faults = [foreign(reply.text, one.start, one.end) for one in (first, last)]
        if fault := None if None in faults else faults[-1]:
            raise UnreadError(fault)
        said = reply.text.strip() if self.form == "json" else critique
        require_undisputed(said if self.form == "json" else around, {rating})
        if self._echoed(rating, reply.judged):
            raise UnreadError(Status.ECHO)
        return [Reading(SCORED, Appraisal(rating=rating, rationale=said))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a critique with its score."""
        score = draw.randint(LOWEST, self.scale.best)
        return written_score(self.form, score, self.scale, reason, self.path)

    def _written(self, text: str) -> Iterator[WrittenScore]:
        """Give what stands in the form that is asked for."""
        if self.form == "json":
            yield from self._in_objects(text)
        elif self.form == "out_of":
            yield from _out_of(text)
        else:
            pattern = {"line": OVERALL, "result": RESULT, "brackets": BRACKETS}[self.form]
            for match in pattern.finditer(text):
                yield WrittenScore(match[1], match.start(), match.end())

    def _in_objects(self, text: str) -> Iterator[WrittenScore]:
        """Give the scores of objects; one that cannot be read may have had the score."""
        for value, start, end in json_objects(text):
            said = _at(value, self.path)
            if value is None or (said is not None and not isinstance(said, str)):
                raise UnreadError(Status.MALFORMED)
            if said is not None:
                yield WrittenScore(said, start, end)

    def _agreed(self, found: list[WrittenScore]) -> float:
        """Return the score that all statements agree on.

        Raises:
            UnreadError: if they do not, one is no score of the scale, or none applies.
        """
        ratings = {rating_of(each.text, self.scale) for each in found}
        if len(ratings) > 1:
            raise UnreadError(Status.CONTRADICTORY)
        rating = ratings.pop()
        if rating is None:
            raise UnreadError(Status.NOT_APPLICABLE)
        return rating

    def _echoed(self, rating: float, judged: Sequence[str]) -> bool:
        """Whether a judged text states the score, too, in the same form or another dress of it."""
        worded = {**DRESSED, "json": self.path[-1] + ": {score:g}"}
        dressed = worded.get(self.form)
        return (dressed is not None and holds(judged, [dressed.format(score=rating)])) or any(
            rating in self._stated(text) for text in judged
        )

    def _stated(self, text: str) -> set[float | None]:
        """Return the scores that a judged text states."""
        try:
            return {rating_of(each.text, self.scale) for each in self._written(seen(text))}
        except UnreadError:
            return set()


def _without(text: str, found: Sequence[WrittenScore]) -> str:
    """Return a text without these statements, and without the ends of their lines."""
    kept: list[str] = []
    at = 0
    for each in found:
        kept.append(text[at : each.start])
        at = max(at, each.end + 1)
    return "".join([*kept, text[at:]])


def _at(value: object, path: tuple[str, ...]) -> object:
    """Return what a path of fields leads to; None if it leads nowhere."""
    if not path:
        return value
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return _at(fields.get(path[0]), path[1:])


def written_score(
    form: ScoreForm,
    score: float,
    scale: GradeScale,
    critique: str,
    path: tuple[str, ...] = SCORE_PATH,
) -> ExampleReply:
    """Write a critique and its score in the form that is asked for."""
    number = int(score) if score == int(score) else score
    if form != "json":
        return ExampleReply(critique, WORDED[form].format(score=number, best=scale.best))
    value: object = number
    for name in reversed(path[1:]):
        value = {name: value}
    said = {"critique": critique, path[0]: value}
    return ExampleReply("", json.dumps(said, ensure_ascii=False))


def _out_of(text: str) -> Iterator[WrittenScore]:
    """Give what ends its line and is called a score there, or has nothing ahead of it."""
    for match in OUT_OF.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        lead = _SENTENCE.split(line)[-1].strip(" \t*_`#>(-:")
        if not lead or (_CALLED.search(lead) and not _KEYED.search(lead)):
            yield WrittenScore(f"{match[1]}/{match[2]}", match.start(), match.end())
