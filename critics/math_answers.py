r"""Final answers in worked solutions.

The final answer is what the last mark announces: `\boxed{...}`, `#### N` (GSM8K), "the answer is
N", "Answer: N", a line "A: N", `<answer>N</answer>`, or the same in other languages; a remark after
it ("18 (9 eggs)", "18, because ...") is no part of it. Boxes that "and", "or" or a comma join are
one answer. Without any mark it is the last number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .math_boxes import Boxed, boxed_answers
from .math_marks import lower, marks
from .math_text import as_western, improper

LAST_CHARACTERS = 4000
"""How much of an answer's end is searched when nothing marks its final answer."""
WHOLE = 1000
"""How long a text may be that is an answer as a whole."""
ANNOUNCED = 500
"""How many characters of an announced answer are looked at for its first line and sentence."""

NO_ANSWER = re.compile(
    r"(?:not\s)?(?:correct|right|wrong|incorrect|helpful|useful|clear|unclear|obvious|simple|easy"
    r"|reasonable|unique|the\ssame|in\sthe|as\sfollows?)\b(?!:)"
)
TAG, END_TAG, THOUGHT = "<answer>", "</answer>", "</think>"
DISPLAYED = (("\\[", "\\]"), ("$$", "$$"))
END = re.compile(r"(?<!\\)[.!?]\s")
PLAIN = re.compile(r"-?[0-9]+(?:[.,][0-9]+)*")
QUANTITY = re.compile(
    r"(?P<number>[$]?\s?[-+]?\d(?:[\d,.]*\d)?(?:\s?/\s?\d+)?(?:\s?(?:\\?%|percent\b|pct\b))?)"
    r"(?P<unit>(?:\s?[^\W\d_]+\.?){0,6})(?P<rest>.*)",
    re.DOTALL,
)
FORMULA = re.compile(r"(\$[^$]+\$|\\\(.+?\\\))(?P<rest>\s(?!percent|pct)[^\W\d_][^$\\%]*)")
DOLLARS = re.compile(r"\$[^$\n]+\$")
EQUATION = re.compile(r"\d\s*=\s*[$]?-?\d")
SHORT_UNIT = re.compile(r"[$]?-?[\d.,/ ]*\d(?: ?%)?(?:\s[a-z]+){0,2}")
REASON = re.compile(r"\b(?:because|since|as|which|that)\b")
RELATION = re.compile(r"\b(?:for|from|per|at|with|by|after|on|when|if)\b")
CLAUSE = re.compile(r"(?:[,;:\u2013\u2014]|\s-)\s*[^\W\d_]{2,}")
DERIVED = re.compile(
    r"=|\b(?:so|thus|therefore|hence|and|or|und|oder|et|ou|y|o|e|и|или)\b|和|或|\\"
)
"""What shows that more of the answer follows, and not a remark on it."""

LISTED = re.compile(r",(?!\d{3}(?!\d))|;|\\pm|±|\b(?:and|or)\b|或|和")
NESTED = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")


@dataclass(frozen=True, slots=True)
class Final:
    """A final answer as written.

    `marked`: it was announced, or is the whole text; `formula`: read it as one formula, instead of
    searching it for one. `every` holds all boxes of the text, where it has more than the last.
    """

    text: str
    marked: bool
    formula: bool
    every: str | None = None


def final_answer(text: str) -> Final:
    """Find the final answer of a worked solution."""
    whole = _concluding(as_western(text))
    padded = f"\n{whole}"
    boxes = boxed_answers(padded)
    announced = next(_announced(padded, after=boxes.end if boxes else -1), None)
    if announced is not None:
        return announced
    if boxes is not None:
        return _boxed(boxes)
    whole = whole.strip()
    if len(whole) <= WHOLE and _is_whole(whole):
        return marked(whole)
    return Final(whole[-LAST_CHARACTERS:], marked=False, formula=False)


def marked(text: str) -> Final:
    """Return a text as an answer that was announced."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text.removeprefix(opening).removesuffix(closing)
        if text == f"{opening}{inner}{closing}" and opening not in inner:
            return Final(improper(inner.strip()), marked=True, formula=True)
    return Final(improper(text), marked=True, formula=_is_formula(text))


def has_word(text: str) -> bool:
    """Whether two letters stand side by side outside a LaTeX command."""
    letters = 0
    command = False
    for character in text:
        letters = letters + 1 if character.isalpha() and not command else 0
        command = character == "\\" or (command and character.isalpha())
        if letters > 1:
            return True
    return False


def _concluding(text: str) -> str:
    """Return what follows the thoughts of a solution, and what its answer tag holds."""
    at = text.rfind(TAG)
    if at >= 0:
        inner = text[at + len(TAG) :].partition(END_TAG)[0].strip()
        return inner if _tells(inner) or "\n" in inner else f"#### {inner}"
    _, thought, conclusion = text.rpartition(THOUGHT)
    return conclusion if thought and conclusion.strip() else text


def _boxed(boxes: Boxed) -> Final:
    every = None if boxes.every is None else improper(boxes.every)
    return Final(improper(boxes.text), marked=True, formula=True, every=every)


def _tells(text: str) -> bool:
    return "\\boxed{" in text or next(marks(text, after=0), None) is not None


def _announced(text: str, *, after: int) -> Iterator[Final]:
    """Yield the answers that words announce behind a place, the last first.

    Behind a box, words count that tell a number or a formula: "I hope this answer is of use".
    """
    for mark in marks(text, after=after):
        told = text[mark.end :].lstrip(" \t\r\n:*_")
        sentence, is_last = _first_sentence(told)
        if PLAIN.fullmatch(sentence):
            yield Final(sentence, marked=True, formula=True)
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
        yield _boxed(inner) if inner else marked(answer)


def _first_sentence(told: str) -> tuple[str, bool]:
    """Return the first sentence of what is told, and whether nothing follows it."""
    for opening, closing in DISPLAYED:
        if told.startswith(opening):
            formula, _, rest = told[len(opening) :].partition(closing)
            return f"\\({formula.strip()}\\)", not rest.strip(" .\n")
    line = told[:ANNOUNCED].partition("\n")[0]
    end = END.search(line)
    sentence = line if end is None else line[: end.start()]
    rest = told[len(sentence) :].strip(" .!?*_\r\n")
    return sentence.strip().rstrip(".").strip(" *_"), not rest


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
    """Whether a text is nothing but an answer."""
    if DOLLARS.fullmatch(text):
        return True
    return "\n" not in text and (_is_formula(text.strip("$")) or _is_quantity(text))


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
    """Whether a reference without a task says a number, a formula or a choice, and not a text."""
    found = final_answer(reference)
    if not found.marked:
        return EQUATION.search(reference) is not None
    short = SHORT_UNIT.fullmatch(found.text) is not None
    stated = found.text != reference.strip() or found.formula
    return (stated or short) and any(c.isalnum() for c in found.text) and not _says_words(found)


def _says_words(found: Final) -> bool:
    return not found.formula and not any(c.isdigit() or c == "\\" for c in found.text)


def answer_to(reference: Final, answer: Final) -> Final:
    """Return what is compared of an answer: all its boxes, if the reference is a list."""
    if answer.every is None or not _is_list(reference.text) or _is_list(answer.text):
        return answer
    return replace(answer, text=answer.every)


def _is_list(text: str) -> bool:
    """Whether a text names several answers, and not one tuple or interval."""
    inner = text.strip().removeprefix("\\{").removesuffix("\\}")
    return LISTED.search(NESTED.sub("", NESTED.sub("", inner))) is not None
