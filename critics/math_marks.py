r"""The marks of a final answer: boxes, and words that announce it (`####`, "the answer is", 答案).

A mark with a verb announces the text after it. A label ("Answer:", "A:") may also be the heading of
a whole solution.

Of boxes, `\boxed{...}`, the last is the answer, with the boxes that "and", "or" or a comma join to
it; intermediate boxes are not. A question with several answers may have each boxed at a different
place: then all boxes count (`every`). The same answer in two boxes is one.

Denied numbers ("not 3", "isn't 3", "3 is wrong", "4 rather than 3") are replaced by the sign
`DENIED`, so that they are not read as answers. They are kept: a number that is stated first and
denied later is not an answer.
"""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .math_text import QUANTITY, UNIT

ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
MARKED_WITHIN = 100_000
"""Characters before a text's end that are searched for a mark."""
NEAR = 300
"""Characters before a text's end that usually contain it."""
LONGEST = 12
MOST = 16
"""How many marks are looked at, from the last one on."""

# Each alternative begins with a letter, so that the search skips all places without one.
WORDS = re.compile(
    r"####|answers?|antwort|r[ée]ponse|respuesta|risposta|resposta|ответ|答えは|答案|答|故选|应选|정답은|\na:"
)
VERB = re.compile(
    r"(?:\sfinale?|\scorrecta?|\s(?:to|for|of)\s[^.:\n]{1,80}?)?[*_]{0,2}"
    r"(?:\s?(?:is|was|are|were|(?:will|would|should|must|could|might|may|has\sto|can\sonly"
    r"|turns\sout\sto)\sbe|equals|comes\s(?:out\s)?to|ist|lautet|est|es|è|é"
    r"|是|为|為|应为|等于)(?![a-z])(?P<verb>\s?:?)|\s?[:=]|\s[\u2013\u2014-]\s|\u2014)"
)
ALONE = ("####", "故选", "应选", "答えは", "정답은")
LETTER = "\na:"
DENIED = "\ue000"
"""The sign for a denied number."""
CORRECTION = re.compile(
    rf"(?:{DENIED}\)?|\b(?:wait|actually|sorry|oops|correction|no(?:pe)?(?=\s?[,.:!;\u2014])|hm+"
    r"|scratch\sthat|or\srather|i\smeant?|make\sthat|but(?=\s(?:it|that)\b)))[\s,.:;!?\u2026\u2014-]{1,4}"
    r"(?:(?:but|rather|instead|so|no|wait|actually)[\s,]{1,2}){0,2}"
    r"(?:(?:it|that|this)(?:['\u2019]s|\s(?:is|was|(?:should|must|would|will)\sbe))\s(?:actually\s)?"
    r"|i\smeant?\s|make\sthat\s|而?是\s?|the\s(?:right|correct|actual)\s[a-z]{1,20}\sis\s)?"
    rf"(?P<what>{QUANTITY})(?:\s[^\W\d_]{{1,20}})?\s?(?=[.!;,)\n]|$)"
)
"""A number that corrects an earlier one: "Wait, it is 4.", "..., no, 4"."""
BOXED = "\\boxed{"
SPAN = 20_000
"""How many characters before the last box others are looked for."""
LONGEST_BOX = 400_000
"""How many characters of an unclosed box are its answer: no answer in earnest is as long."""
GAP = 80
"""The most characters between two boxes that are joined."""
BRACES = re.compile(r"\\boxed\{|[{}]")
COMMANDS = re.compile(r"\\(?:text|mbox|mathrm)\s?\{|\\[A-Za-z]+|\\[^A-Za-z]|[${}~\s]+")
JOINING = re.compile(
    r"(?:[^\W\d_]+\s|[^\W\d_]+(?:_?\d+)?\s?=\s?|for\spart\s\(.\)\s){0,3}?(?:[,;、]\s?)?"
    r"(?:and|or|und|oder|et|ou|y|o|и|или|和|或|与)\b\s?(?:[^\W\d_]+(?:_?\d+)?\s?=\s?)?",
    re.IGNORECASE,
)
DERIVING = re.compile(
    r"\b(?:so|thus|then|therefore|hence|gives?|get|is|means|total|finally|but|not|wait)\b|所以|因此"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in a text: its end, and whether it may be a mere heading."""

    end: int
    label: bool


def lower(text: str) -> str:
    """Return a text of the same length in small letters; `str.lower` makes some texts longer."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(ASCII_LOWER)


def marks(text: str, *, after: int) -> Iterator[Mark]:
    """Yield the marks of a text behind a place, the last first."""
    first = max(after, len(text) - MARKED_WITHIN, 0)
    near = max(first, len(text) - NEAR)
    end = len(text)
    for start, stop in ((near, end), (first, near)):
        part = lower(text[start : min(end, stop + LONGEST + 100)])
        found = [m for m in WORDS.finditer(part) if start + m.start() < stop][-MOST:]
        for word in reversed(found):
            tail = VERB.match(part, word.end())
            if word[0] in (*ALONE, LETTER):
                yield Mark(start + word.end(), label=word[0] == LETTER)
            elif tail is not None:
                yield Mark(start + tail.end(), label=tail["verb"] is None)


def correction(text: str, *, after: int) -> re.Match[str] | None:
    """Return the last number behind a place that corrects the answer stated there."""
    start = max(after, len(text) - MARKED_WITHIN)
    return max(CORRECTION.finditer(lower(text), start), key=lambda m: m.start(), default=None)


@dataclass(frozen=True, slots=True)
class Boxed:
    """The last joined boxes of a text, and all of them; `end` is the end of the last one."""

    text: str
    every: str | None
    end: int


def boxed_answers(text: str) -> Boxed | None:
    """Return the boxed answers of a text, None without a box."""
    last = text.rfind(BOXED)
    if last < 0:
        return None
    spans = _spans(text, max(0, last - SPAN), last)
    joined = [spans[-1]]
    for span in reversed(spans[:-1]):
        if not _joins(text[span[1] + 1 : joined[0][0] - len(BOXED)]):
            break
        joined.insert(0, span)
    own, every = (_join_texts(text[start:end] for start, end in of) for of in (joined, spans))
    return Boxed(own, every if every != own else None, spans[-1][1])


def _spans(text: str, start: int, last: int) -> Sequence[tuple[int, int]]:
    """Return the spans of the boxes, the innermost of nested ones; the last may be open."""
    found = list[tuple[int, int]]()
    opened = list[int]()
    """Where each open brace's box begins; -1 for a brace that opens none."""
    begins = last + len(BOXED)
    for brace in BRACES.finditer(text, start, begins + LONGEST_BOX):
        if brace[0] == "}":
            begun = opened.pop() if opened else -1
            if begun >= 0 and not (found and found[-1][0] > begun):
                found.append((begun, brace.start()))
            if begun == begins:
                return found
        else:
            opened.append(brace.end() if brace[0] == BOXED else -1)
    return [*found, (begins, min(len(text), begins + LONGEST_BOX))]


def _joins(between: str) -> bool:
    if len(between) > GAP or "\n\n" in between:
        return False
    words = " ".join(COMMANDS.sub(" ", between).split())
    if DERIVING.search(words):
        return False
    return not words.strip(",;、&") or JOINING.fullmatch(f"{words} ") is not None


def _join_texts(texts: Iterable[str]) -> str:
    distinct = {"".join(text.split()): text.strip() for text in texts}
    return ", ".join(distinct.values())


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
