"""The question to a judge that scores one answer by a form, and the reading of its scores.

The reply is one object with a number for each aspect. An aspect's value is a number, or an object
with a `score` and a `reason`. Each aspect is read separately: if its score is missing or off the
scale it is unscored, and the others count. Objects that differ do not count, nor does an object
whose scores a judged text contains.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from ...stores.records import SCORED, Prompt
from ..grading.grade_reply import LOWEST, NA, Appraisal, GradeScale, rating_of
from ..guard import BARE, GuardKey
from ..judge import ExampleReply, Expected, JudgeReply, Question, Reading, absent, build_question
from ..quoting import Stated, fault_of, holds, require_undisputed, visible_text, without
from ..reply_schema import ReplySchema, comment, decode_object, json_objects, object_of, one_of
from ..status import Status, UnreadError
from ..templating import fixed_lines
from .answer_forms import AnswerForm

SCORE, REASON = "score", "reason"
_FENCE = re.compile(r"`{3,}\w*")
MOST_OBJECTS = 40
"""So many objects of a judged text are looked at."""

Said = Mapping[str, object]


def ask_scores(
    form: AnswerForm, prompt: Prompt, answer: str, key: GuardKey = BARE
) -> Question[Appraisal]:
    """Return the question that scores an answer to `prompt` in each of its aspects."""
    aspects = form.aspects_of(prompt)
    keys = tuple(form.key_of(aspect) for aspect in aspects)
    texts = {"answer": answer, "instruction": prompt.instruction}
    if form.needs_reference:
        texts["reference"] = prompt.reference or ""
    named = zip(keys, aspects, strict=True)
    values = {
        "aspects": "\n".join(f"- {name}: {form.aspects[aspect].says}" for name, aspect in named),
        "form": _object(keys, form.scale.best),
    }
    expected, lines = AspectScores(keys=keys, scale=form.scale), fixed_lines(form.template)
    return build_question(form.template, texts, expected, key, values=values, own_lines=lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectScores(Expected[Appraisal]):
    """The expected reply: a score in each aspect, by its name in the reply."""

    keys: tuple[str, ...]
    scale: GradeScale

    place: ClassVar[str] = (
        "If you write an analysis, write it first. Then write the line {mark} by itself, and "
        "below it the object alone."
    )

    @property
    def nothing(self) -> tuple[Appraisal, ...]:
        """No score in any aspect."""
        return (Appraisal(),) * len(self.keys)

    @property
    def schema(self) -> ReplySchema:
        """The schema of an object with a reason and a score, a whole number, for each aspect."""
        best, may_not_apply = self.scale.best, self.scale.may_not_apply
        scores = [*range(LOWEST, best + 1), *([NA] if may_not_apply else [])]
        aspect = object_of({REASON: comment(len(self.keys)), SCORE: one_of(scores)})
        return object_of(dict.fromkeys(self.keys, aspect))

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Appraisal]]:
        """Read a score in each aspect.

        Raises:
            UnreadError: if a judged text states these scores, too.
        """
        numbers = {key: {**one, SCORE: str(one[SCORE])} for key, one in document.items()}
        readings = self._readings(numbers)
        if self._is_echoed(_scores(readings), judged):
            raise UnreadError(Status.ECHO)
        return [_with_reason(reading, "") for reading in readings]

    def read(self, reply: JudgeReply) -> list[Reading[Appraisal]]:
        """Read a score in each aspect, or the reason why it is missing.

        Raises:
            UnreadError: if the judge's object is missing, or several objects differ.
        """
        objects = list(json_objects(reply.text))
        if any(value is None for value, _, _ in objects):
            raise UnreadError(Status.MALFORMED)
        found = [one for one in objects if any(key in (one.value or {}) for key in self.keys)]
        if not found:
            raise UnreadError(absent(reply.text, Status.MISSING))
        read_objects = [self._readings(one.value or {}) for one in found]
        readings, scores = read_objects[-1], _scores(read_objects[-1])
        if any(_scores(one) != scores for one in read_objects):
            raise UnreadError(Status.CONTRADICTORY)
        stated = [Stated(start=one.start, end=one.end) for one in found]
        if fault := fault_of(reply.text, stated):
            raise UnreadError(fault)
        if self._is_echoed(scores, reply.judged):
            raise UnreadError(Status.ECHO)
        around = _FENCE.sub("", without(reply.text, stated))
        analysis = f"{reply.before}{around}".strip()
        require_undisputed(analysis, {score for score in scores if score is not None})
        return [_with_reason(reading, analysis) for reading in readings]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return an object with a score and a reason for each aspect."""
        best = self.scale.best
        document = {key: {REASON: reason, SCORE: draw.randint(LOWEST, best)} for key in self.keys}
        return ExampleReply("", json.dumps(document, ensure_ascii=False))

    def _readings(self, document: Said) -> list[Reading[Appraisal]]:
        return [self._reading(document.get(key)) for key in self.keys]

    def _reading(self, value: object) -> Reading[Appraisal]:
        """Read an aspect's value: its score, and its reason if there is one."""
        if value is None:
            return Reading(Status.MISSING.value, Appraisal())
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {SCORE: value}
        score, reason = fields.get(SCORE), fields.get(REASON)
        why = reason.strip() if isinstance(reason, str) else ""
        if not isinstance(score, str):
            status = Status.INCOMPLETE if score is None else Status.MALFORMED
            return Reading(status.value, Appraisal(rationale=why))
        try:
            rating = rating_of(score, self.scale)
        except UnreadError as error:
            return Reading(error.status.value, Appraisal(rationale=why))
        status = Status.NOT_APPLICABLE if rating is None else Status.SCORED
        return Reading(status.value, Appraisal(rating=rating, rationale=why))

    def _is_echoed(self, scores: Sequence[float | None], judged: Sequence[str]) -> bool:
        """Whether a judged text gives every aspect the score that the judge gives it."""
        stated = [
            f"{key}: {score:g}"
            for key, score in zip(self.keys, scores, strict=True)
            if score is not None
        ]
        if not stated:
            return False
        return holds(judged, stated) or any(
            _scores(self._readings(document)) == scores
            for text in judged
            for document in _every_object(visible_text(text))
        )


def _object(keys: tuple[str, ...], best: int) -> str:
    """Return the object that a reply must contain, with placeholders for its values."""
    inner = f'{{"{REASON}": "...", "{SCORE}": {LOWEST}-{best}}}'
    return "{" + ", ".join(f'"{key}": {inner}' for key in keys) + "}"


def _scores(readings: Sequence[Reading[Appraisal]]) -> list[float | None]:
    return [reading.value.rating for reading in readings]


def _with_reason(reading: Reading[Appraisal], analysis: str) -> Reading[Appraisal]:
    """Return a reading with its reason, else the analysis; a bare number is unread."""
    value = reading.value
    if reading.status != SCORED or value.rationale:
        return reading
    if not analysis:
        return Reading(Status.INCOMPLETE.value, Appraisal())
    return Reading(SCORED, Appraisal(rating=value.rating, rationale=analysis))


def _every_object(text: str) -> Iterator[Said]:
    """Give the objects of a text, at any place."""
    at = -1
    for _ in range(MOST_OBJECTS):
        at = text.find("{", at + 1)
        if at < 0:
            return
        found = decode_object(text, at)
        if found is not None:
            yield found[0]
