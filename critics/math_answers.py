r"""Final answers in worked solutions.

The final answer follows the last mark: `\boxed{...}`, `#### N` (GSM8K), "the answer is N", "Answer:
N", a line "A: N", `<answer>N</answer>`, or the same in other languages; a remark after it ("18 (9
eggs)", "18, because ...") is not part of it. Boxes joined by "and", "or" or a comma are one answer.
Without any mark it is the last number. A denied number ("not 18") is never the answer, and a
correction ("Wait, it is 19") replaces it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .math_marks import (
    DENIED,
    Boxed,
    boxed_answers,
    correction,
    lower,
    marks,
    strip_signs,
    without_denied,
)
from .math_text import IN_WORDS, as_western, improper

LAST_CHARACTERS = 4000
"""How much of an answer's end is searched when nothing marks its final answer."""
WHOLE = 1000
"""How long a text may be that is an answer as a whole."""
ANNOUNCED = 500
"""How many characters of an announced answer are looked at for its first line and sentence."""

NO_ANSWER = re.compile(
    r"(?:not\s)?(?:correct|right|wrong|incorrect|helpful|useful|clear|unclear|obvious|simple|easy"
    r"|reasonable|unique|the\ssame|in\sthe|as\sfollows?|what|how|why|based|found|obtained|given"
    r"|final|good|fine|great|rounded)\b(?!:)"
)
NO_NUMBER = re.compile(
    r"(?:unknown|undefined|none|no\b|nothing|infinit|impossible|indetermin|not\s|cannot|can['\u2019]t)"
)
"""Beginnings of answers that are not numbers, but take the place of one."""
SPELLED_OUT = re.compile(rf"{IN_WORDS}(?:\s[^\W\d_]+){{0,3}}\.?", re.IGNORECASE)
DECORATION = re.compile(
    r"(?:\s{1,3}[:;]-?[)D]|\s{0,3}[\u2219\u220e\u25a0\u25a1\u2600-\u27bf\ufe0f\U0001f300-\U0001faff]){1,9}$"
)
EXCLAIMED = re.compile(r"[^$\\^!]*(?:\d|[^\W\d_]{2})!+")
BULLET = re.compile(r"[ \t:*_]*\n\s*[-\u2013\u2022]\s+(?=[\d$\\])")
TAG, END_TAG, THOUGHT = "<answer>", "</answer>", "</think>"
DISPLAYED = (("\\[", "\\]"), ("$$", "$$"))
END = re.compile(r"(?<!\\)[.!?]\s(?![Oo]r\s[\d$*\\])")
PLAIN = re.compile(r"-?[0-9]+(?:[.,][0-9]+)*")
QUANTITY = re.compile(
    r"(?P<number>[-+]?[$]?\s?[-+]?\d(?:[\d,.]*\d)?(?:\s?/\s?\d+)?(?:\s?(?:\\?%|percent\b|pct\b))?)"
    r"(?P<unit>(?:\s?[^\W\d_]+\.?){0,6})(?P<rest>.*)",
    re.DOTALL,
)
FORMULA = re.compile(r"(\$[^$]+\$|\\\(.+?\\\))(?P<rest>\s(?!percent|pct)[^\W\d_][^$\\%]*)")
DOLLARS = re.compile(r"\$[^$\n]+\$")
EQUATION = re.compile(r"\d\s*=\s*[$]?-?\d")
SHORT_UNIT = re.compile(r"[$]?-?[\d.,/ ]*\d(?: ?%)?(?:\s[a-z]+){0,2}")
REASON = re.compile(r"\b(?:because|since|as|which|that)\b")
RELATION = re.compile(r"\b(?:for|from|out\sof|per|at|with|by|after|on|when|if)\b")
CLAUSE = re.compile(r"(?:[,;:\u2013\u2014]|\s-)\s*[^\W\d_]{2,}")
DERIVED = re.compile(
    r"=|\b(?:so|thus|therefore|hence|and|or|und|oder|et|ou|y|o|e|и|или|maybe|perhaps|possibly"
    r"|alternatively)\b|和|或|\\"
)
"""Signs that more of the answer follows, and not a remark on it."""

LISTED = re.compile(r",(?!\d{3}(?!\d))|;|\\pm|±|\b(?:and|or)\b|或|和")
NESTED = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")


@dataclass(frozen=True, slots=True)
class Final:
    """A final answer as written.

    `marked`: it was announced, or is the whole text; `formula`: read it as one formula, instead of
    searching it for one. `every` holds all boxes of the text, if it has more than the last, and
    `words` a later announcement without a number. `denied` lists the numbers that the text denies
    after it states the answer.
    """

    text: str
    marked: bool
    formula: bool
    every: str | None = None
    words: str | None = None
    denied: tuple[str, ...] = ()


def final_answer(text: str) -> Final:
    """Find the final answer of a worked solution."""
    denials = without_denied(f"\n{_concluding(as_western(text))}")
    place, found = _find_statement(denials.text)
    if place >= 0 or denials.numbers:
        corrected = correction(denials.text, after=place)
        if corrected is not None:
            what = denials.text[slice(*corrected.span("what"))]
            place, found = corrected.end("what"), announced_answer(what.strip("*_"))
    return replace(found, denied=denials.after(place))


def _find_statement(text: str) -> tuple[int, Final]:
    """Return the answer that a text states, and the start of the statement; -1: nowhere."""
    boxes = boxed_answers(text)
    words: tuple[int, Final] | None = None
    for place, found in _iter_announced(text, after=boxes.end if boxes else -1):
        if _says_number(found):
            return place, replace(found, words=words[1].text if words else None)
        words = words or (place, found)
    if boxes is not None:
        return boxes.end, _final_of_boxes(boxes)
    if words is not None:
        return words
    whole = improper(strip_signs(text)).strip()
    if len(whole) <= WHOLE and _is_whole(whole):
        return -1, announced_answer(whole)
    last = max((text.rfind(digit) for digit in "0123456789"), default=-1)
    return last, Final(whole[-LAST_CHARACTERS:], marked=False, formula=False)


def _says_number(found: Final) -> bool:
    """Whether an announcement contains a number or a formula, or declares that none exists."""
    text = found.text.strip("* _")
    return not is_wordy(found.text) or bool(SPELLED_OUT.match(text) or NO_NUMBER.match(lower(text)))


def announced_answer(text: str) -> Final:
    """Return a text as an answer that was announced."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text.removeprefix(opening).removesuffix(closing)
        if text == f"{opening}{inner}{closing}" and opening not in inner:
            return Final(improper(inner.strip()), marked=True, formula=True)
    return Final(improper(text), marked=True, formula=_is_formula(text))


def has_word(text: str) -> bool:
    """Whether two letters are adjacent outside a LaTeX command."""
    letters = 0
    command = False
    for character in text:
        letters = letters + 1 if character.isalpha() and not command else 0
        command = character == "\\" or (command and character.isalpha())
        if letters > 1:
            return True
    return False


def _concluding(text: str) -> str:
    """Return the text after the thoughts of a solution, or the contents of its answer tag."""
    at = text.rfind(TAG)
    if at >= 0:
        inner = text[at + len(TAG) :].partition(END_TAG)[0].strip()
        announced = "\\boxed{" in inner or next(marks(inner, after=0), None) is not None
        return inner if announced or "\n" in inner else f"#### {inner}"
    _, thought, conclusion = text.rpartition(THOUGHT)
    return conclusion if thought and conclusion.strip() else text


def _final_of_boxes(boxes: Boxed) -> Final:
    every = None if boxes.every is None else improper(boxes.every)
    return Final(improper(boxes.text), marked=True, formula=True, every=every)


def _iter_announced(text: str, *, after: int) -> Iterator[tuple[int, Final]]:
    """Yield the announced answers after a place with their positions, the last first.

    After a box, only words with a number or a formula count, unlike "I hope this answer is useful".
    """
    for mark in marks(text, after=after):
        bullet = BULLET.match(text, mark.end)
        rest = text[bullet.end() if bullet else mark.end :].lstrip(" \t\r\n:*_\u2013")
        sentence, is_last = _first_sentence(rest)
        if DENIED in sentence:
            sentence = strip_signs(sentence)
            if not any(c.isdigit() or c == "\\" for c in sentence) or f"{{{DENIED}" in sentence:
                continue
        if PLAIN.fullmatch(sentence):
            yield mark.end, Final(sentence, marked=True, formula=True)
        if not sentence or NO_ANSWER.match(lower(sentence)):
            continue
        answer = _without_remark(sentence)
        short = answer != sentence or _is_formula(answer) or _is_quantity(answer)
        if mark.label and not (is_last or short):
            # A heading, with the solution below.
            continue
        if after >= 0 and not any(c.isdigit() or c == "\\" for c in answer):
            continue
        inner = boxed_answers(answer) if mark.end > after else None
        yield mark.end, _final_of_boxes(inner) if inner else announced_answer(answer)


def _first_sentence(text: str) -> tuple[str, bool]:
    """Return the first sentence of an announcement, and whether it is the last."""
    for opening, closing in DISPLAYED:
        if text.startswith(opening):
            formula, _, rest = text[len(opening) :].partition(closing)
            return f"\\({formula.strip()}\\)", not rest.strip(" .\n")
    line = text[:ANNOUNCED].partition("\n")[0]
    end = END.search(line)
    sentence = line if end is None else line[: end.start()]
    rest = text[len(sentence) :].strip(" .!?*_\r\n")
    sentence = DECORATION.sub("", sentence).strip()
    if EXCLAIMED.fullmatch(sentence):
        # Outside of a formula "5!" is an exclamation, and not a factorial.
        sentence = sentence.rstrip("!")
    return sentence.rstrip(".").strip(" *_"), not rest


def _without_remark(sentence: str) -> str:
    """Return a quantity or a formula without the remark behind it; all else as it is."""
    formula = FORMULA.fullmatch(sentence)
    if formula is not None and not has_word(formula[1]) and not DERIVED.search(formula["rest"]):
        return formula[1]
    found = QUANTITY.fullmatch(sentence)
    if found is None or _is_formula(sentence):
        return sentence
    number, unit, rest = (part.strip() for part in found.group("number", "unit", "rest"))
    reason = REASON.search(unit) or (RELATION.search(unit) if rest else None)
    bracket = rest.startswith("(") and has_word(rest.partition(")")[0])
    if reason is not None and not DERIVED.search(f"{unit} {rest}"):
        unit = unit[: reason.start()]
    elif DERIVED.search(rest) or not (bracket or CLAUSE.match(f"{number[-1:]}{rest}", 1)):
        return sentence
    return f"{number} {unit}".strip(" ,")


def _is_whole(text: str) -> bool:
    """Whether a text consists only of an answer."""
    if DOLLARS.fullmatch(text):
        return True
    if "\n" in text:
        return False
    spelled = SPELLED_OUT.fullmatch(text) is not None
    return spelled or _is_formula(text.strip("$")) or _is_quantity(text)


def _is_quantity(text: str) -> bool:
    """Whether a text is a number, alone or before a unit in words."""
    found = QUANTITY.fullmatch(text.strip("$ "))
    return found is not None and not found["rest"].strip(" .") and not DERIVED.search(found["unit"])


def _is_formula(text: str) -> bool:
    return "$" not in text and (text.startswith("\\") or not has_word(text))


def reference_answer(text: str) -> Final:
    """Find the final answer of a reference: all its boxes; words without a mark are one, too."""
    found = final_answer(text)
    if found.every is not None:
        return replace(found, text=found.every)
    words = text.strip()
    if found.marked or not words or "\n" in words or any(c.isdigit() for c in words):
        return found
    return Final(f"\\text{{{words.removesuffix('.')}}}", marked=True, formula=True)


def is_mathematical(reference: str) -> bool:
    """Whether a reference without a task is a number, a formula or a choice, and not a text."""
    found = final_answer(reference)
    if not found.marked:
        return EQUATION.search(reference) is not None
    short = SHORT_UNIT.fullmatch(found.text) is not None
    stated = found.text != reference.strip() or found.formula
    says_words = not found.formula and not any(c.isdigit() or c == "\\" for c in found.text)
    return (stated or short) and any(c.isalnum() for c in found.text) and not says_words


def is_wordy(text: str) -> bool:
    """Whether an answer is in words, without a digit or a formula."""
    text = text.removeprefix("\\text")
    return has_word(text) and not any(c.isdigit() or c == "\\" for c in text)


def answer_to(reference: Final, answer: Final) -> Final:
    """Return the part of an answer to compare: all its boxes, if the reference is a list."""
    if answer.words is not None and is_wordy(reference.text):
        return replace(announced_answer(answer.words), denied=answer.denied)
    if answer.every is None or not is_list(reference.text) or is_list(answer.text):
        return answer
    return replace(answer, text=answer.every)


def is_list(text: str) -> bool:
    """Whether a text names several answers, and not one tuple or interval."""
    inner = text.strip().removeprefix("\\{").removesuffix("\\}")
    return LISTED.search(NESTED.sub("", NESTED.sub("", inner))) is not None
