"""Numbers that a worked solution denies: "not 3", "isn't 3", "3 is wrong", "4 rather than 3".

`without_denied` replaces each of them by the sign `DENIED`, so that they are not read as answers.
The denied numbers are kept: a number that is stated first and denied later is not an answer.
"""

import re
from dataclasses import dataclass

from .math_marks import DENIED, lower
from .math_text import QUANTITY, UNIT

READ = 6000
"""How many characters before a text's end are searched for denials."""
SENTENCE = 200
"""How many characters before "That is wrong." may be the sentence that it takes back."""

_FILLERS = (
    r"(?:(?:be|equal|equals|to|just|simply|merely|exactly|actually|really|going|the|a|an|number"
    r"|value|answer|necessarily|even|always|quite|as|much|many|have|has|same|option|=)\s){0,4}"
)
_VERBS = (
    r"(?:is|are|was|were|does|do|did|would|will|could|should|must|may|might|can|has|have|had|be)"
)
_MORE = rf"(?:{UNIT}\s?(?:\b(?:n?or|to|and|oder|ou|und|et)\b|[-/])\s?(?:{QUANTITY})){{0,3}}"
_NOT = (
    rf"\b(?:(?P<verb>{_VERBS}|ca|wo|sha|ai)(?:n['\u2019]t|\s[*_]{{0,2}}(?:not|never)[*_]{{0,2}})"
    r"|can(?P<can>not)|(?<!or\s)(?<!if\s)(?<!why\s)[*_]{0,2}not[*_]{0,2}|never|neither|nicht|weder"
    r"|n['\u2019](?P<est>est)\spas|no\s(?P<es>es)|non\s(?P<e>è)|não\s(?P<ee>é)|не|no(?=\s[\d$]))\s"
)
_INSTEAD = (
    r"\b(?:rather\sthan|instead\sof|as\sopposed\sto|unlike|(?<!none\s)(?<!be\s)other\sthan"
    r"|different\sfrom|differs\sfrom|no\slonger|unlikely\sto\sbe|(?:is|was)\sanything\sbut)\s"
)
_ANSWER_IS = (
    r"(?:answer|result|value|solution|guess|choice)s?\s?(?:(?:is|was|would\sbe|should\sbe)\s|:\s?)"
)
_BELIEF = (
    rf"\b(?:wrong|incorrect|false|mistaken)\s(?:[a-z]{{1,20}}\s)?{_ANSWER_IS}"
    r"|\b(?:(?:do|does|did|would|ca|can)(?:n['\u2019]t|\snot|not)\s(?:think|believe|say|claim|agree"
    r"|mean|conclude|suppose)|doubt|deny|untrue|false|incorrect|wrong|mistaken?|not\s(?:true|correct"
    r"|right|the\scase))\s(?:(?:to|say|think|claim|conclude|assume|believe)\s){0,2}(?:that\s)?"
    rf"(?:the|my|your|its)\s(?:[a-z]{{1,20}}\s)?{_ANSWER_IS}"
)
BEFORE = re.compile(
    rf"(?:(?:{_NOT}|{_INSTEAD}){_FILLERS}|{_BELIEF}|(?P<shi>不是|并非|並非)\s?)(?:\}}\s?)?"
    rf"(?P<what>(?:{QUANTITY}){_MORE})(?!\s?[+*^=\u00d7\u00f7]\s?[\d$\\(a-z])"
)
"""A denial and the numbers behind it, which are not the beginning of an equation."""

_ROLE = r"(?:the|an?|my)\s(?:[a-z]{1,20}\s){0,2}(?:answer|solution|result|one|value)"
_RIGHT = rf"(?:right|correct|true|valid|possible|acceptable|it(?![\w'\u2019])|{_ROLE})"
_WRONG = (
    r"(?:(?:an?|the|clearly|definitely|obviously|simply|just|also|plainly|certainly|common)\s){0,2}"
    r"(?:wrong|incorrect|false|mistaken|mistake|impossible|too\s(?:small|large|big|low|high|many|few"
    r"|much|little|great))\b"
)
_NOT_BE = (
    r"(?:can(?:\s?not|['\u2019]t)|could(?:\snot|n['\u2019]t)|would(?:\snot|n['\u2019]t)|must\snot)"
    r"\s(?:possibly\s)?be"
)
_IS_WRONG = (
    rf"(?:(?:is|was|are|were|seems|would\sbe|must\sbe)\s{_WRONG}"
    rf"|(?:(?:(?:is|was|are|were)(?:\s[*_]{{0,2}}not[*_]{{0,2}}|n['\u2019]t))|{_NOT_BE})\s{_RIGHT})"
)
AFTER = re.compile(
    rf"(?P<what>{QUANTITY}){UNIT}(?:,?\s(?:which\s|that\s)?{_IS_WRONG}"
    r"|\s?(?:では(?:ない|ありません)|じゃない|이\s?아니|가\s?아니))"
)
"""A number and the words behind it that deny it."""

TAKEN_BACK = re.compile(
    r"(?<=[.!?\u2026\n])\s{0,3}(?:(?:no|nope|wait|hm+|oops|sorry|actually|but|hold\son|oh|well"
    r"|however)[\s,.!\u2026\u2014-]{1,4}){0,4}(?:that|this|it|(?:my|this|that)\s(?:[a-z]{1,20}\s)?"
    rf"answer)(?:(?:['\u2019]s|\sis|\swas|\sseems|\slooks)\s{_WRONG}"
    rf"|(?:(?:['\u2019]s|\sis|\swas)\snot|\s(?:is|was)n['\u2019]t|\s{_NOT_BE})\s{_RIGHT})"
    r"\s{0,3}(?=[.!:;,\u2026\n]|$)"
)
"""A sentence that takes back the one before it: "No wait, that is wrong."."""
END = re.compile(r"[.!?]\s|\n")
NUMBERS = re.compile(QUANTITY)

DANGLING = re.compile(
    rf"\s{{0,3}}(?:[,;(\u2013\u2014-]\s{{0,3}})?(?:\b(?:and|but)\s{{1,3}})?"
    rf"(?:\b[a-z]{{2,12}}ly\s{{1,3}})?{DENIED}\s?\)?"
)
LEADING = re.compile(
    r"[\s,;:.]{0,4}(?:\b(?:but|rather|instead|it\sis|it['\u2019]s|actually|so)\s+){1,3}"
)


@dataclass(frozen=True, slots=True)
class Denials:
    """A text with a sign for each denial, and the numbers that each denies."""

    text: str
    numbers: tuple[tuple[str, ...], ...]

    def after(self, place: int) -> tuple[str, ...]:
        """Return the numbers that are denied behind a place of the text."""
        first = self.text.count(DENIED, 0, max(place, 0))
        return tuple(number for numbers in self.numbers[first:] for number in numbers)


def without_denied(text: str) -> Denials:
    """Replace the denied numbers of a text by signs."""
    text = text.replace(DENIED, "")
    start = max(0, len(text) - READ)
    small = lower(text[start:])
    found = sorted(
        (m for pattern in (BEFORE, AFTER, TAKEN_BACK) for m in pattern.finditer(small)),
        key=lambda m: (m.start(), -m.end()),
    )
    pieces = [text[:start]]
    numbers = list[tuple[str, ...]]()
    at = 0
    for match in found:
        if match.start() < at:
            continue
        pieces.append(text[start + at : start + match.start()])
        pieces.append(_sign(match))
        numbers.append(tuple(m[0] for m in NUMBERS.finditer(_denied(match, small))))
        at = match.end()
    return Denials("".join((*pieces, text[start + at :])), tuple(numbers))


def _denied(match: re.Match[str], text: str) -> str:
    if match.re is not TAKEN_BACK:
        return match["what"]
    before = text[max(0, match.start() - SENTENCE) : match.start()].rstrip(" .!?\n\u2026")
    ends = [end.end() for end in END.finditer(before)]
    return before[ends[-1] if ends else 0 :]


def _sign(match: re.Match[str]) -> str:
    """Return the sign, behind the verb that an answer's mark needs, with the braces that close."""
    verb = ""
    if match.re is BEFORE:
        parts = match.groupdict()
        foreign = parts["est"] or parts["es"] or parts["e"] or parts["ee"]
        verb = "是 " if parts["shi"] else f"{foreign} " if foreign else ""
        if parts["verb"] or parts["can"]:
            verb = "is "
    what = match.start("what") if "what" in match.re.groupindex else match.end()
    braces = match[0][: what - match.start()].count("}")
    return f" {verb}{DENIED}{'}' * braces}"


def strip_signs(statement: str) -> str:
    """Return a statement without the signs, and without the words that joined them to the rest."""
    if DENIED not in statement:
        return statement
    rest = DANGLING.sub("", statement)
    lead = LEADING.match(lower(rest))
    return rest[lead.end() :].strip() if lead else rest.strip(" ,;")
