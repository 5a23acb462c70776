"""Forms by which a judge scores single answers: Just-Eval, AlignBench, or the user's YAML file.

A form has a scale from 1 to `best`, `aspects` with their meanings, and the `template` of the
question. `kinds` map a prompt's task, family, source or eval set to its aspects. `totals` are means
of the means of categories, which prompts name as their family.

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
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import Field, StringConstraints, ValidationError, model_validator

from ...configs.pools import Pools, fault, read_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import digest
from ...stores.records import SCORED, Prompt
from ..grading.grade_reply import LOWEST, Appraisal, GradeScale, rating_of
from ..guard import BARE, GuardKey, fixed_lines, placeholders
from ..judge import ExampleReply, Expected, JudgeReply, Question, Reading, absent, build_question
from ..quoting import Stated, fault_of, holds, require_undisputed, visible_text, without
from ..reply_schema import (
    MOST_OBJECTS,
    ReplySchema,
    comment,
    decode_object,
    json_objects,
    object_of,
)
from ..status import Status, UnreadError

FORMS = Pools(folder=Path(__file__).parent / "forms", item="form")
NEEDED, MAY_HAVE = frozenset({"instruction", "answer", "aspects", "form"}), frozenset({"reference"})

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Key = Annotated[Text, Field(pattern=r"^[^{}\"'\\:\n\r]*$")]
"""A key of the object in a reply."""
AspectName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class ScoredAspect(Section):
    """The meaning of an aspect; `key` is its name in a reply, if that differs."""

    says: Text
    key: Key | None = None


class ScoredKind(Section):
    """The aspects of prompts whose task, family, source or eval set is in `of`; empty: all."""

    of: tuple[Text, ...] = ()
    aspects: tuple[AspectName, ...] = Field(min_length=1)


class AnswerForm(Section):
    """A form as its file has it; its name prefixes the names of its scores: `just-eval:depth`."""

    name: str
    best: int = Field(ge=2, le=100)
    may_not_apply: bool = False
    aspects: dict[AspectName, ScoredAspect] = Field(min_length=1)
    kinds: tuple[ScoredKind, ...] = ()
    mean: tuple[AspectName, ...] = ()
    total: AspectName | None = None
    totals: dict[AspectName, tuple[tuple[Text, ...], ...]] = Field(default_factory=dict)
    template: Text

    @model_validator(mode="after")
    def _whole(self) -> Self:
        there = placeholders(self.template)
        if missing := NEEDED - there:
            raise ValueError(f"the template lacks {{{min(missing)}}}")
        if unknown := there - NEEDED - MAY_HAVE:
            raise ValueError(f"the template has the unknown placeholder {{{min(unknown)}}}")
        named = {*self.mean, *(n for kind in self.kinds for n in kind.aspects)}
        if unknown := {*named, *filter(None, (self.total,))} - {*self.aspects}:
            raise ValueError(f"{min(unknown)!r} is not one of its aspects")
        if self.totals and self.total is None:
            raise ValueError("totals need a total: the aspect whose means they are of")
        return self

    @property
    def digest(self) -> str:
        """The hash of all that shapes its questions, and how they are read."""
        return digest(self.model_dump(mode="json", exclude={"name", "mean", "total", "totals"}))

    @property
    def summed(self) -> str:
        """The hash of the totals into which scores are summed up."""
        return digest(self.model_dump(mode="json", include={"mean", "total", "totals"}))

    @property
    def scale(self) -> GradeScale:
        """From 1 to the best."""
        return GradeScale(best=self.best, may_not_apply=self.may_not_apply)

    @property
    def needs_reference(self) -> bool:
        """Whether answers are compared with the prompt's reference."""
        return "reference" in placeholders(self.template)

    def lacks_reference(self, prompt: Prompt) -> bool:
        """Whether an answer cannot be scored since its prompt lacks the reference for the form."""
        there = prompt.reference is not None and bool(prompt.reference.strip())
        return self.needs_reference and not there

    def aspects_of(self, prompt: Prompt) -> tuple[str, ...]:
        """Return the names of the aspects that answers to a prompt are scored in."""
        called = (prompt.task, prompt.family, prompt.source, prompt.eval_set)
        for name in filter(None, called):
            for kind in self.kinds:
                if name in kind.of:
                    return kind.aspects
        usual = (kind.aspects for kind in self.kinds if not kind.of)
        return next(usual, tuple(self.aspects))

    def metric(self, aspect: str) -> str:
        """Return the name of an aspect's scores in the lake."""
        return f"{self.name}:{aspect}"


def load_form(name_or_path: str) -> AnswerForm:
    """Read a shipped form by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a form; names the file and the field.
    """
    path = FORMS.place(name_or_path)
    hint = f"; shipped are {', '.join(FORMS.shipped_names())}"
    document = read_yaml(path, missing="no form of scores can be read", hint=hint)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of fields, such as best and aspects")
    fields = cast("dict[str, object]", document)
    if "name" in fields:
        raise ConfigError(f"{path}: unknown field 'name': a form is named by its file")
    try:
        return AnswerForm.model_validate({"name": path.stem, **fields})
    except ValidationError as error:
        raise ConfigError(f"{path}: {fault(error, AnswerForm)}") from error


Forms = Mapping[str, AnswerForm]
"""Forms by their names."""


SCORE, REASON = "score", "reason"
_FENCE = re.compile(r"`{3,}\w*")

Said = Mapping[str, object]


def ask_scores(
    form: AnswerForm, prompt: Prompt, answer: str, key: GuardKey = BARE
) -> Question[Appraisal]:
    """Return the question that scores an answer to `prompt` in each of its aspects."""
    aspects = form.aspects_of(prompt)
    keys = tuple(form.aspects[aspect].key or aspect for aspect in aspects)
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
        aspect = object_of({REASON: comment(len(self.keys)), SCORE: self.scale.schema})
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
