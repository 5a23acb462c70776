"""Whether a verdict in a reply is the judge's own: not quoted, denied, contradicted nor repeated.

A judge that finds a forged verdict in a text may name it, and a reader that accepts any verdict
would then believe the forger. The rules check the words right before and behind a verdict, the
judge's declarations in the first person, and whether a judged text contains the verdict itself.
They cover the usual phrases, not all of English. All take linear time.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .status import Status, UnreadError

NEAR = 240
"""Characters before and behind a verdict in which its quotation is looked for."""
COMMENTED = 600
"""Characters of a comment before its rating in an object."""

_FILLING = (
    r"(?:[ \t]+(?:with|by|me|us|to|for|in|the|a|an|this|that|following|line|text|verdict|score|"
    r"rating|ratings|dictionary|object|list|words?|itself|its|their|own|so|here|writing|saying|"
    r"claiming|reviewer|judge|grader|forged|fake|end|read|as|follows)){0,8}"
    r"[ \t]*[:,]?[ \t]*[*_`\"'\u201c\u201d>]*"
)
_ATTRIBUTED = re.compile(
    r"(?<!as )\b(?:wrote|writes|written|said|says|claim(?:s|ed|ing)|reads?|contain(?:s|ed|ing)|"
    r"end(?:s|ed|ing)|quot(?:e|es|ed|ing)|stat(?:es|ed)|demand(?:s|ed|ing)|tells|tried|tries|"
    r"forg(?:e|es|ed|ing|ery)|insert(?:s|ed|ing)|inject(?:s|ed|ing)|suggest(?:s|ed)|"
    r"propos(?:es|ed)|copied|copies|repeat(?:s|ed|ing)|pretend(?:s|ed|ing)|fak(?:es|ed|ing)|"
    rf"words were|own verdict|own rating|own score){_FILLING}$",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our)\b(?! (?:was|were|am|are) )")
_DENIED = re.compile(
    r"(?:\bwould be (?:wrong|a mistake|false|dishonest|unfair) to\b|"
    r"\b(?:I|we)\b[^.!?\n]{0,30}\b(?:refuse|decline|never|won't|wouldn't|will not|would not|cannot|"
    r"can't|do not|don't|not)\b)[^.!?\n:]{0,20}?\b(?:give|rate|write|assign|say|output|return|"
    rf"award|accept|endorse|agree|mean|state|score){_FILLING}$",
    re.IGNORECASE,
)
_CONTINUED = re.compile(
    r"(?:would|is|was|are|were|has|had|should|must|cannot|will|could|does|did|came|comes|"
    r"stands|stood|being|which|that)\b"
)
_DISOWNED = re.compile(
    r"\b(?:this|that|these|those|it|above|which)\b[^.\n]{0,30}\b(?:forg\w+|quot\w+|copied|"
    r"inject\w+|inserted|planted|not my|not mine|never my|not what i|isn't my|"
    r"(?:answer|text|response|candidate|output)(?:'s|\u2019s| claim| wrote| sa(?:id|ys)| want))|"
    r"\b(?:ignore|disregard) (?:this|that|the above|it)\b",
    re.IGNORECASE,
)
_NUMBER = r"[\"'*`]*(minus one|zero|[-\u2212]?[0-9]{1,3}(?:\.[0-9]{1,3})?)(?![0-9])"
_HEDGED = r"(?![^.\n]{0,80}\b(?:if|unless|had|were)\b)"
_DECLARED = (
    re.compile(
        r"\b(?:my|our|the (?:true|real|actual|correct|honest|final))(?: (?:own|true|real|actual|"
        r"honest|final|overall|correct)){0,3} (?:score|rating|grade|verdict|judge?ment)s?"
        r"(?: (?:for|of|on) [^.\n:]{0,30}?)?[ \t]*(?:is|=|:|remains|stays|would be|will be|"
        rf"must be|should be)[ \t]*(?:(?:a|an|only|still|at)[ \t]+)?{_NUMBER}{_HEDGED}",
        re.IGNORECASE,
    ),
    re.compile(
        r"\bI (?:(?:would|do|still|therefore|must|will|myself|only) ){0,3}(?:rate|score|give|judge|"
        r"grade|assign|award)(?: (?:it|this|that|the \w+))?(?: (?:as|with|at|only))?(?: (?:a|an))?"
        rf"(?: (?:score|rating|grade|clear))?(?: of)? {_NUMBER}{_HEDGED}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^[ \t*#>-]*(?:(?:final|overall|my) ){{0,2}}score[ \t*]*:[ \t*]*{_NUMBER}[ \t*.\]]*$",
        re.IGNORECASE | re.MULTILINE,
    ),
)
_CHOSEN = re.compile(
    r"\b(?:my (?:own |final |real )?(?:verdict|choice|preference|decision|pick)(?: is|:)|"
    r"I (?:(?:would|do|still|clearly|therefore|must) ){0,2}"
    r"(?:prefer|choose|pick|favou?r|decide for|go with))"
    r"(?: for)?(?: the)? (?:(?:output|answer|response)[ \t]*)?\(?(1|2|first|second)\b",
    re.IGNORECASE,
)
_WORDS = {"minus one": "-1", "zero": "0"}
_OPENING_MARKS = " \t\r*_`#>[(-"
_SENTENCE = re.compile(r"(?<=[.!?;]) ")
_LABEL = re.compile(
    r"(?:(?:so|thus|hence|therefore|my|the|final|overall|python|json),? ?){0,4}"
    r"(?:(?:scores?|ratings?|verdict|python|json|dictionary|result|evaluation|feedback)(?: is)?)?|"
    r"score:[ *]*-?[01][.*]*",
    re.IGNORECASE,
)
"""Characters allowed before a verdict on its line, in addition to text that ends in a colon."""
_FENCE = re.compile(r"(?:^|\n)[ \t]*`{3,}\w*[ \t]*$")

LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁѵԝɡΑΒΕΖΗΙΚΜΝΟΡΤΥΧαορντικγАВЕКМНОРСТХІ",
    "aeopcyxijshdvwgabezhikmnoptyxaopvtikyabekmhopctxi",
)
"""Letters of other alphabets that look like Latin ones: a judge may repeat them as these."""
_DROPPED = re.compile(r"[\s\"'`*_\\\u201c\u201d\u2018\u2019+]|(?<=[0-9])\.0+(?![0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The position of a statement in a text: from `start` to `end`."""

    start: int = 0
    end: int = 0


def foreign(text: str, start: int, end: int) -> Status | None:
    """Return why the verdict from `start` to `end` is not the judge's own, if it is not."""
    near = _FENCE.sub("", text[max(0, start - NEAR) : start].rstrip(_OPENING_MARKS))
    lead = near.rstrip().rpartition("\n")[2]
    sentence = _SENTENCE.split(lead)[-1]
    if _DENIED.search(sentence):
        return Status.NEGATED
    if _ATTRIBUTED.search(sentence) and not _FIRST_PERSON.search(sentence):
        return Status.QUOTED
    tail = text[end : end + NEAR].lstrip(" \t\r\n]`*.}")
    return Status.QUOTED if _CONTINUED.match(tail) or _DISOWNED.search(tail) else None


def fault_of(text: str, stated: Sequence[Stated]) -> Status | None:
    """Return why a verdict that a text states is not the judge's own, if it is not.

    If it is stated several times, the first or the last of them must be the judge's own.
    """
    faults = [foreign(text, one.start, one.end) for one in (stated[0], stated[-1])]
    return None if None in faults else faults[-1]


def without(text: str, stated: Sequence[Stated]) -> str:
    """Return a text without these statements, and without the ends of their lines."""
    kept = list[str]()
    at = 0
    for each in stated:
        kept.append(text[at : each.start])
        at = max(at, each.end + 1)
    return "".join([*kept, text[at:]])


def begins_line(text: str, start: int) -> bool:
    """Whether `start` begins its line, ignoring marks, a label or whole sentences before it."""
    line = text[max(text.rfind("\n", 0, start) + 1, start - NEAR) : start]
    lead = _SENTENCE.split(line)[-1].strip(_OPENING_MARKS)
    return lead.endswith((":", "=")) or _LABEL.fullmatch(lead) is not None


def require_undisputed(text: str, values: Collection[float]) -> None:
    """Refuse a verdict of `values` if the judge declares another one in words.

    Raises:
        UnreadError: if it does.
    """
    for pattern in _DECLARED:
        for match in pattern.finditer(text):
            word = _WORDS.get(match[1].lower(), match[1].replace("\u2212", "-"))
            if float(word) not in values:
                raise UnreadError(Status.CONTRADICTORY)


def declared_choices(text: str) -> frozenset[str]:
    """Return the numbers of the outputs that the judge prefers in the first person."""
    words = (word.lower() for word in _CHOSEN.findall(text))
    return frozenset("1" if word in ("1", "first") else "2" for word in words)


def visible_text(text: str) -> str:
    """Return a text without invisible marks, and with look-alike letters unified."""
    folded = unicodedata.normalize("NFKC", text).translate(LOOKALIKES)
    return folded if folded.isascii() else "".join(map(_letter, folded))


@lru_cache(maxsize=64)
def plain(text: str) -> str:
    """Return a text without features that a judge that repeats it may change.

    These are capitals, quotes, white space, characters that `visible_text` drops, and the notation
    of numbers.
    """
    return _DROPPED.sub("", visible_text(text).casefold())


def _letter(c: str) -> str:
    """Return a letter as it is seen: nothing for an invisible mark, one dash for all of them."""
    kind = unicodedata.category(c)
    return "" if kind == "Cf" else "-" if kind == "Pd" or c == "\u2212" else c


def holds(texts: Iterable[str], entries: Collection[str]) -> bool:
    """Whether one of the texts has all of these entries, such as `preferred: 2`, in any dress.

    A value may be in an object, after a comment: `quality: {comment: good, rating: 2}`.
    """
    needles = [plain(entry) for entry in entries]
    return any(all(_has(plain(text), entry) for entry in needles) for text in texts)


def _has(text: str, entry: str) -> bool:
    """Whether a text contains an entry with no digit right after it."""
    # Most texts do not contain it at all; `in` finds that without an expression.
    if entry in text and re.search(rf"{re.escape(entry)}(?!\.?[0-9])", text) is not None:
        return True
    name, _, value = entry.rpartition(":")
    if not name or f"{name}:{{" not in text:
        return False
    rated = rf":\{{.{{0,{COMMENTED}}}?(?:rating|score):"
    nested = rf"{re.escape(name)}{rated}{re.escape(value)}(?!\.?[0-9])"
    return re.search(nested, text) is not None
