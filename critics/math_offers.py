r"""Answers that offer several numbers, a range or a bound, although the reference is one number.

"3 or 4", "between 3 and 5", "3-5" and "at least 3" do not state which number is the answer, so they
are not right for any of their numbers. An answer that states one number twice ("five (5)", "0.5 or
1/2") is right if each form is. "About 3" states one number, and is compared as 3.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from .math_answers import Final, announced_answer, is_list, is_wordy
from .math_marks import NUMBERS, lower
from .math_numbers import plain_value, quick_equal
from .math_text import QUANTITY, UNIT

TAIL = 400
"""How many characters before the end of an answer without a mark are searched."""

_HEDGE = r"(?:maybe|perhaps|possibly|even|else|alternatively)"
_FILL = (
    rf"(?:(?:{_HEDGE}|about|option|choice|a|as\smany\sas|is"
    r"|it(?:['\u2019]s|\s(?:is|(?:might|could|may|can|would)(?:\salso)?\sbe))"
    r"|also)\s){0,2}(?:[a-z]\s?=\s?)?"
)
_WORD = (
    r"(?:or|and|to|through|thru|until|till|vs\.?|versus|oder|und|bis|ou|et|à|o|y|e|или|и|до"
    r"|或者?|和|与|到|至|または|と|から|또는|and/or|but(?=\s(?:less|more|at)))"
)
_JOIN = (
    rf"(?:\s?[,;(.]{{0,3}}\s?\b{_WORD}\s(?:[,;]\s)?{_FILL}(?:(?:less|more)\sthan\s|at\s(?:least|most)\s)?"
    rf"|\s?[,;(]\s?{_HEDGE}\s|\s?(?:[~〜\uff5e\u2026\u2013|]|\.{{2,3}}|-{{2,3}}|\\text\{{-{{2,3}}\}})\s?"
    r"|\s?[(\[]\s?)"
)
_LISTED = rf"(?:\s?[,;&]\s{_FILL})"
GROUP = re.compile(rf"(?:{QUANTITY})(?:{UNIT}{_JOIN}(?:{QUANTITY})){{1,9}}")
LIST = re.compile(rf"(?:{QUANTITY})(?:{UNIT}(?:{_JOIN}|{_LISTED})(?:{QUANTITY})){{1,9}}")
DATE = re.compile(r"(?<![\d.,/-])(?:\d{4}-\d\d?-\d\d?|\d\d?-\d\d?-\d{4})(?![\d-])")
HYPHENED = re.compile(
    r"(?<![\w^}).,/*+=-])(?<![\w*/+=]\s)\$?(?P<low>\d[\d,]{0,15}(?:\.\d{1,9})?)-\$?(?P<high>\d[\d,]{0,15}(?:\.\d{1,9})?)"
    r"(?![\d^*/+=-]|\s?[*/+=])"
)
"""`3-5` on its own: a range if the second number is larger, else a subtraction."""
SPAN = re.compile(
    r"\b(?:between|from|to|through|thru|until|till|bis|entre|zwischen)\b|\d\s?[-\u2013~\u301c\u2026]\s?\d"
    r"|[\u5230\u81f3]"
)
"""Signs that two numbers are the ends of a range, and not a list."""
NEARING = re.compile(
    r"\b(?:round|increas|decreas|reduc|rais|chang|convert|simplif|lower|drop|went|goes|grew|grow"
    r"|rose|fell)[a-z]{0,6}(?:\s[a-z]{1,20}){0,3}\s$"
)
"""Verbs before "2.96 to 3" that make it no range."""
BOUND = re.compile(
    r"(?:(?:\bat\s(?:least|most)|\b(?:more|less|fewer|greater|larger|smaller|bigger|higher|lower)"
    r"\sthan(?:\sor\sequal\sto)?|\bexceed(?:s|ing)?|\bas\s(?:much|many|high|low|few)\sas|\bmindestens"
    r"|\bhöchstens|\bau\s(?:moins|plus)|\bal\smenos|\bcomo\smáximo|\balmeno|\bне\s(?:менее|более)"  # noqa: RUF001 -- Russian
    r"|(?:^|\b(?:is|are|was|be|has|have|had|takes?|needs?|costs?|for|just)\s)"
    r"(?:over|under|above|below|up\sto|beyond))\s(?:about\s|a\s|the\s|number\s)?"
    r"|(?:至少|至多|最多|超过)\s?|(?<![<>\w\"/])(?:[<>]=?|[≤≥≠]|!=)\s?"
    r"|\\(?:geq?|leq?|neq?|gt|lt|geqslant|leqslant)(?![a-z])\s?)"
    rf"(?P<what>{QUANTITY})"
    rf"|(?P<less>{QUANTITY}){UNIT}(?:\s?\b(?:or|and)\s(?:more|less|fewer|greater|higher|lower"
    r"|larger|smaller|above|below|up|over|under|beyond)\b(?!\s(?:than|from))"
    r"|\+(?=$|[.!]|\s[^\W\d_]{3})|\s?\bat\s(?:least|most)(?=$|[.!,])|\s?(?:以上|以下))"
)
SEVERAL = re.compile(r",(?!\d{3}(?!\d))|[<>≤≥≠]|\\(?:cup|in|infty)(?![a-z])")
"""Signs that a reference is not a single number, but a list, an interval or a relation."""


def one_of(reference: Final, answer: Final) -> Final:
    """Return an answer as it is compared with a reference that is one number.

    The text is empty if the answer denies the number, or offers another one with it.
    """
    if is_wordy(reference.text):
        return answer
    parts = _offered_numbers(answer)
    if (
        SEVERAL.search(reference.text)
        or is_list(reference.text)
        or _offered_numbers(reference) is not None
    ):
        listed = parts and reference.marked and not answer.formula and not SPAN.search(answer.text)
        return Final(", ".join(parts or ()), marked=False, formula=True) if listed else answer
    if any(
        quick_equal(reference, announced_answer(_as_answer(number))) for number in answer.denied
    ):
        return replace(answer, text="")
    return answer if parts is None else _all_of(parts, reference, answer)


def _all_of(parts: Sequence[str], reference: Final, answer: Final) -> Final:
    """Return the numbers to compare if an answer offers several: each must be right."""
    alike = [quick_equal(reference, announced_answer(part)) for part in parts]
    if not parts or False in alike:
        return replace(answer, text="")
    if all(alike):
        return replace(reference, marked=answer.marked)
    return Final(", ".join(parts), marked=answer.marked, formula=True)


def _offered_numbers(final: Final) -> Sequence[str] | None:
    """Return the numbers that an answer offers; none for a bound; None if it states one number."""
    text = final.text if final.marked else final.text[-TAIL:]
    small = lower(text)
    spans = [match.span() for match in NUMBERS.finditer(small)]
    if not spans:
        return None
    first, last = spans[0][0], spans[-1][1]

    def decides(start: int, end: int) -> bool:
        return end >= last or (final.marked and start <= first and "=" not in small)

    for match in BOUND.finditer(small):
        start, end = match.span("what" if match["what"] else "less")
        if decides(start, end):
            return ()
    for match in (*DATE.finditer(small), *HYPHENED.finditer(small)):
        if decides(*match.span()) and (match.re is DATE or _ascends(match)):
            return [] if match.re is DATE else [match["low"], match["high"]]
    for match in (LIST if final.marked or first == 0 else GROUP).finditer(small):
        if decides(*match.span()) and not NEARING.search(small[: match.start()]):
            return [
                _as_answer(text[slice(*m.span())]) for m in NUMBERS.finditer(small, *match.span())
            ]
    return None


def _ascends(match: re.Match[str]) -> bool:
    low, high = (float(match[name].replace(",", "")) for name in ("low", "high"))
    return low < high


def _as_answer(number: str) -> str:
    """Return a number of a text as an answer: in digits, without the marks around it."""
    number = number.strip("*_ ")
    for opening, closing in (("\\boxed{", "}"), ("\\(", "\\)"), ("$", "$")):
        if number.startswith(opening) and number.endswith(closing):
            number = number.removeprefix(opening).removesuffix(closing)
    value = plain_value(number)
    return number.strip("$ ") if value is None or "%" in number else f"{value:f}"
