"""Reading a grader's reply: a rating of each completion, or the reason why it is unread.

A reply about several completions is read as a whole: if it does not have one block for each of
them, in the order of their numbers, nothing counts, since the completion of each rating is
uncertain. A rating is the written number, 8.5 as 8.5 and 1 as 1: it is never rounded, scaled or
guessed. (UltraFeedback's own reader cut 8.5 at its point, and took a 1 for a share of 10: see
OpenBMB/UltraFeedback, issue 8.)

Labels (headings of texts, names of fields) count only at the beginning of a line. Completions are
shown with an invisible mark inside such labels, so that a quoted completion is not read as a
verdict. A judge may drop the mark: a rating that the completion itself contains is therefore an
echo.

The overall score of one completion is a line below a critique in words: `Overall score: 7`. A score
that the critique denies is contradictory, and one that a judged text states in the same words is an
echo.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...stores.chat_markers import WORD_JOINER
from ...stores.records import SCORED, GradedAspect
from ..judge import ExampleReply, Expected, JudgeReply, Reading, absent, reasons
from ..quoting import Stated, fault_of, holds, require_undisputed, visible_text, without
from ..reply_schema import ReplySchema, comment, list_of, object_of, one_of
from ..status import Status, UnreadError

LOWEST = 1
"""The worst rating on every scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeScale:
    """How an aspect is rated: from `LOWEST` to `best`.

    `types` is the number of kinds of mistakes, or of help, in its template's numbered list; 0 for a
    template without a list. `may_not_apply` allows N/A instead of a rating.
    """

    best: int
    types: int = 0
    may_not_apply: bool = False

    @property
    def schema(self) -> ReplySchema:
        """The schema of a rating, a whole number."""
        return one_of([*range(LOWEST, self.best + 1), *([NA] if self.may_not_apply else [])])


SCALES: Mapping[GradedAspect, GradeScale] = {
    "instruction_following": GradeScale(best=5),
    "truthfulness": GradeScale(best=5, types=3),
    "honesty": GradeScale(best=5, may_not_apply=True),
    "helpfulness": GradeScale(best=5, types=3),
    "overall": GradeScale(best=10),
}

BY_NAME: Mapping[str, GradeScale] = {str(aspect): scale for aspect, scale in SCALES.items()}
"""The scales by any name; a form of scores defines other aspects and another scale."""

FINE_GRAINED: tuple[GradedAspect, ...] = tuple(a for a in SCALES if a != "overall")
"""The aspects that all completions of a prompt are rated in together; their mean is the
fine-grained score."""


LABEL = r"[ \t>*#\[_`-]*"
"""Characters that Markdown may put before a label."""
SCORE = r"overall[ \t]+score"
OPENING = " \t\r*_`[(#"
CLOSING = " \t\r*_`])."
"""Characters allowed before and after a value."""
NUMBER = re.compile(r"(-?[0-9]{1,4}(?:\.[0-9]{1,4})?)(?:\s*/\s*([0-9]{1,4}))?")
NOT_APPLICABLE = frozenset({"n/a", "na", "not applicable"})
NA = "N/A"
NO_TYPES = frozenset({"none", "n/a"})
TYPE = re.compile(r"0|[1-9][0-9]?")

TEXTS = "texts"
"""The list of the appraisals, in an object."""
FIELDS = r"type[ \t]+rationale|type|rationale|rating"
TEXT = r"(?:output[ \t]+for[ \t]+)?text"
HEADING = re.compile(rf"{LABEL}{TEXT}[ \t]+([0-9]{{1,4}})[\]*:._` \t\r]*", re.IGNORECASE)
"""A line that opens the block of a text, by its number."""
FIELD = re.compile(rf"{LABEL}({FIELDS})[*_` \t]*:(?:[*_]{{1,3}}(?=[ \t\r]|$))?(.*)", re.IGNORECASE)
"""A line that begins a field: its name, and its value on that line (`**Rating:** 4`: `4`)."""
_ANY_LABEL = re.compile(
    rf"^({LABEL}(?:(?:{FIELDS}|{SCORE})(?=[*_` \t]*:)|(?:{TEXT})(?=[ \t]+[0-9])))",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """The reading of a reply about one completion."""

    rating: float | None = None
    rationale: str = ""
    types: tuple[str, ...] = ()
    type_rationale: str = ""


@dataclass(frozen=True, slots=True)
class _Block:
    """The fields of one block, and the names of repeated ones."""

    number: int
    fields: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    twice: set[str] = field(default_factory=set[str])

    def text(self, name: str) -> str:
        return "\n".join(self.fields.get(name, ())).strip()

    def value(self, name: str) -> str:
        return self.fields.get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class Appraisals(Expected[Appraisal]):
    """The expected reply: ratings of `count` completions in one aspect, in their order."""

    aspect: GradedAspect
    count: int

    @property
    def schema(self) -> ReplySchema:
        """The schema of a list with the appraisal of each completion, in their order."""
        scale, reason = SCALES[self.aspect], comment(self.count)
        kinds = one_of([str(number) for number in range(1, scale.types + 1)])
        typed = {"types": list_of(kinds, scale.types), "type_rationale": reason}
        appraisal = object_of(
            {**(typed if scale.types else {}), "rationale": reason, "rating": scale.schema}
        )
        return object_of({TEXTS: list_of(appraisal, self.count, self.count)})

    @property
    def nothing(self) -> tuple[Appraisal, ...]:
        """No rating of any completion."""
        return (Appraisal(),) * self.count

    def read(self, reply: JudgeReply) -> list[Reading[Appraisal]]:
        """Read an appraisal of each completion.

        Raises:
            UnreadError: if one of them lacks its block.
        """
        scale = SCALES[self.aspect]
        blocks = _blocks(reply.text.split("\n"))
        if not blocks:
            raise UnreadError(absent(reply.text, Status.MISSING))
        numbers = [block.number for block in blocks]
        if len(set(numbers)) < len(numbers):
            raise UnreadError(Status.DUPLICATE)
        if numbers != list(range(1, self.count + 1)):
            raise UnreadError(Status.WRONG_NUMBERS)
        appraisals = [_document(block, scale) for block in blocks]
        return self.read_object({TEXTS: appraisals}, reply.judged)

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Appraisal]]:
        """Read an appraisal of each completion."""
        return [
            _own(_of_object(one), number, judged)
            for number, one in enumerate(document[TEXTS], start=1)
        ]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a block for each completion, or a critique with its score."""
        scale = SCALES[self.aspect]
        ratings = [draw.randint(LOWEST, scale.best) for _ in range(self.count)]
        given = reasons(reason, self.count)
        types = "Type: None\nType rationale: None of them shows.\n" if scale.types else ""
        blocks = (
            f"[Text {number}]\n{types}Rationale: {why}\nRating: {rating}"
            for number, (rating, why) in enumerate(zip(ratings, given, strict=True), start=1)
        )
        return ExampleReply("", "\n\n".join(blocks))


def without_labels(text: str) -> str:
    """Return `text` with an invisible mark in every label, so that it is read as prose."""
    return _ANY_LABEL.sub(rf"\g<1>{WORD_JOINER}", text)


def _blocks(lines: Sequence[str]) -> list[_Block]:
    """Return the blocks of a reply; lines before the first one are ignored."""
    blocks: list[_Block] = []
    name = ""
    for line in lines:
        if heading := HEADING.fullmatch(line):
            blocks.append(_Block(int(heading[1])))
            name = ""
        elif blocks and (begun := FIELD.fullmatch(line)):
            name = " ".join(begun[1].lower().split())
            if name in blocks[-1].fields:
                blocks[-1].twice.add(name)
            blocks[-1].fields[name] = [begun[2]]
        elif blocks and name:
            blocks[-1].fields[name].append(line)
    return blocks


def _document(block: _Block, scale: GradeScale) -> dict[str, Any]:
    """Return a block as the object that a schema asks for."""
    if block.twice:
        raise UnreadError(Status.DUPLICATE)
    rating, rationale = block.value("rating"), block.text("rationale")
    if not (rating.strip() and rationale):
        raise UnreadError(Status.INCOMPLETE)
    number = rating_of(rating, scale)
    return {
        "types": _types(block.value("type"), scale.types) if scale.types else (),
        "rating": NA if number is None else number,
        "rationale": rationale,
        "type_rationale": block.text("type rationale"),
    }


def _of_object(document: Mapping[str, Any]) -> Reading[Appraisal]:
    if not document["rationale"].strip():
        raise UnreadError(Status.INCOMPLETE)
    applies = document["rating"] != NA
    value = Appraisal(
        rating=float(document["rating"]) if applies else None,
        rationale=document["rationale"].strip(),
        types=tuple(dict.fromkeys(document.get("types", ()))),
        type_rationale=document.get("type_rationale", "").strip(),
    )
    return Reading((Status.SCORED if applies else Status.NOT_APPLICABLE).value, value)


def _own(reading: Reading[Appraisal], number: int, judged: Sequence[str]) -> Reading[Appraisal]:
    """Return the reading of a block, unless its text holds the rating, or another text both."""
    if reading.value.rating is None:
        return reading
    require_undisputed(reading.value.rationale, {reading.value.rating})
    rating = f"rating: {reading.value.rating:g}"
    echoed = holds(judged[number - 1 : number], [rating]) or holds(
        judged, [f"text {number}", rating]
    )
    return Reading(Status.ECHO.value, Appraisal()) if echoed else reading


def rating_of(text: str, scale: GradeScale) -> float | None:
    """Return the written number; None for N/A if that is offered."""
    words = _bare(text)
    if scale.may_not_apply and words.lower() in NOT_APPLICABLE:
        return None
    found = NUMBER.fullmatch(words)
    if found is None or found[2] not in (None, str(scale.best)):
        raise UnreadError(Status.MALFORMED)
    rating = float(found[1])
    if not LOWEST <= rating <= scale.best:
        raise UnreadError(Status.OUT_OF_RANGE)
    return rating


def _bare(text: str) -> str:
    """Return a value without the marks around it; .5 keeps its point."""
    return text.lstrip(OPENING).rstrip(CLOSING)


def _types(text: str, most: int) -> tuple[str, ...]:
    """Return the numbers of a list such as `1, 3`; none for `None`."""
    words = _bare(text)
    if not words:
        raise UnreadError(Status.INCOMPLETE)
    if words.lower() in NO_TYPES:
        return ()
    named = [word.strip() for word in words.split(",")]
    if not all(TYPE.fullmatch(name) for name in named):
        raise UnreadError(Status.MALFORMED)
    if not all(1 <= int(name) <= most for name in named):
        raise UnreadError(Status.OUT_OF_RANGE)
    if len(set(named)) < len(named):
        raise UnreadError(Status.DUPLICATE)
    return tuple(named)


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
        return object_of({"critique": comment(), "score": self.scale.schema})

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
