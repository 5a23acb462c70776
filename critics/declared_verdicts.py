"""The output that a judge's sentences prefer, such as "Therefore, Output (a) is better".

A sentence counts if it is a plain statement by the judge. Hedged sentences ("if", "might"), limited
ones ("better in terms of length"), questions, denials and reports of other opinions do not count.
The patterns cover the usual phrases of published judges, not all of English: an unknown phrase is
not a verdict.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..stores.records import Preferred
from .quoting import NEAR

_NOUN = r"(?:output|response|answer|assistant|model|option|candidate|completion)"
_NAMED = (
    rf"(?:the[ \t]+)?(?:{_NOUN}[ \t]*"
    r"[(\[\"'\u201c]?(?P<label>[12ab])(?![\w'\u2019])[)\]\"'\u201d]?+"
    rf"|(?P<place>first|second)(?:[ \t]+(?:{_NOUN}|one))?\b)"
)
_OTHER = (
    rf"(?:the[ \t]+)?(?:{_NOUN}[ \t]*[(\[]?[12ab]\b[)\]]?|"
    rf"(?:other|first|second)\b(?:[ \t]+(?:{_NOUN}|one))?)"
)
_STRENGTH = (
    r"(?:(?:the|clearly|much|far|slightly|marginally|definitely|significantly|overall|still|"
    r"therefore|thus|indeed)[ \t]+){0,3}"
)
_END = (
    rf"(?=(?:[ \t]+(?:than|over|to)[ \t]+{_OTHER})?(?:[ \t]+overall|[ \t]+here)?"
    r"(?:[ \t]*(?:[.!;\n)\"'\u201d]|$)|,?[ \t]+(?:because|since|as|due to)\b|"
    r"[ \t]+for the given instruction\b|[ \t]+in (?:this case|my (?:opinion|view))\b))"
)
"""How a sentence continues if it is not limited to one respect."""
_BETTER = re.compile(
    rf"{_NAMED}[ \t]+(?:wins|"
    rf"is[ \t]+{_STRENGTH}(?:better|best|preferred|preferable|superior|winner)"
    rf"(?:[ \t]+(?:{_NOUN}|one|choice)\b)?){_END}",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"\b(?:I[ \t]+(?:(?:would|do|must|will|still|clearly|strongly|slightly|therefore)[ \t]+){0,2}"
    r"(?:prefer|choose|pick|select|favou?r|go with|decide for)|"
    r"(?:my|the)[ \t]+(?:(?:final|own|overall)[ \t]+)?"
    rf"(?:verdict|choice|preference|decision|winner|(?:better|best)[ \t]+{_NOUN})"
    rf"(?:[ \t]+is|:))[ \t]+{_NAMED}{_END}",
    re.IGNORECASE,
)
_EVEN = re.compile(
    rf"\b(?:it(?:[ \t]+is|['\u2019]s)[ \t]+a[ \t]+tie\b|"
    rf"(?:both|the(?:[ \t]+two)?)[ \t]+{_NOUN}s?[^.!?\n]{{0,40}}?[ \t]are[ \t]+equally[ \t]+"
    r"(?:good|bad|preferable|matched)|"
    rf"neither(?:[ \t]+{_NOUN})?[ \t]+is[ \t]+better){_END}",
    re.IGNORECASE,
)
_WORSE = re.compile(
    rf"{_NAMED}[ \t]+is[ \t]+(?:not[ \t]+{_STRENGTH}(?:better|best|preferred|preferable|superior)|"
    rf"{_STRENGTH}(?:worse|worst|inferior)){_END}",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:if|unless|whether|might|may|could|would(?! (?:say|conclude|argue))|should|suppose\w*|"
    r"imagine|pretend\w*|hypothe\w+|seems?|appears?|claim\w*|alleg\w+|said|says|states?|stated|"
    r"wrote|writes|told|tells?|tried|tries|according|why|question|doubt\w*|disagree\w*|deny|denies|"
    r"false|untrue|wrong to|mistake|quot\w+|forg(?:ed|ery)|instead of|rather than)\b|"
    r"\b(?:they|you|he|she|someone|somebody|users?|people|reviewers?|readers?|judges?|others|"
    r"everyone|one)\b[^.!?\n]{0,30}\b(?:say|think|believe|prefer|argue|feel|find|conclude|decide)s?\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"(?:\bnot\b|n['\u2019]t\b|\bnever\b|\bcannot\b)[^.!?\n]{0,60}\b(?:think|believe|say|agree|"
    r"claim|conclude|mean|find|true|case|clear|sure|convinced|accept|certain)\b|"
    r"\b(?:refuse|decline|hesitate|impossible|unable|hard|difficult) to\b",
    re.IGNORECASE,
)
_DENIED_HERE = re.compile(r"\b(?:not|never|neither|nor|hardly)\b|n['\u2019]t\b", re.IGNORECASE)
_JOINED = re.compile(rf"{_NAMED}[ \t]*(?:\b(?:and|or|nor)\b|[/,&])[ \t]*$", re.IGNORECASE)
_SENTENCE_START = re.compile(r"[.!?\n](?=\s)|\n")
_CLAUSE = re.compile(r"[,;:]")
_BLANKED = str.maketrans("*_`", "   ")
SIDES: dict[str, Preferred] = {
    "1": "first",
    "a": "first",
    "first": "first",
    "2": "second",
    "b": "second",
    "second": "second",
}


@dataclass(frozen=True, slots=True)
class StatedChoice:
    """A choice that a sentence states, or one that it denies, and its position."""

    preferred: Preferred
    start: int
    end: int
    denied: bool = False


def stated_choices(text: str) -> Iterator[StatedChoice]:
    """Give the plainly stated choices, and the denied ones, in any order."""
    plain = text.translate(_BLANKED)
    for pattern, denied in ((_BETTER, False), (_CHOSEN, False), (_EVEN, False), (_WORSE, True)):
        for match in pattern.finditer(plain):
            if _straight(plain, match.start()):
                yield StatedChoice(_side(match), match.start(), match.end(), denied)


def _side(match: re.Match[str]) -> Preferred:
    named = match.groupdict()
    label = named.get("label") or named.get("place")
    return SIDES[label.lower()] if label else "tie"


def _straight(text: str, start: int) -> bool:
    """Whether the text before a statement in its sentence leaves it a plain statement."""
    lead = _SENTENCE_START.split(text[max(0, start - NEAR) : start])[-1]
    clause = _CLAUSE.split(lead)[-1]
    return not (
        _HEDGED.search(lead)
        or _DENIES.search(lead)
        or _DENIED_HERE.search(clause)
        or _JOINED.search(lead)
    )
