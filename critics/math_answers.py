r"""Final answers in worked solutions, and the quick comparison of plain numbers.

The final answer is what follows the last mark of one: `\boxed{...}`, `#### N` (GSM8K), "the answer
is N", "Answer: N" or a line "A: N"; without any mark it is the last number. Two plain numbers are
compared here; all else is left to math-verify (`math_pool`), whose verdict the quick comparison
never contradicts.
"""

import re
import string
from dataclasses import dataclass
from decimal import Decimal

CURRENCY = "\\$"
TEXT = "\\text{"
BOXED = "\\boxed{"
MARKS = ("answer is", "####")
LABELS = ("answer:", "\na:")
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""Unlike `str.lower`, it keeps the length of every text."""

LAST_CHARACTERS = 4000
"""How much of an answer's end is searched when nothing marks its final answer."""

NUMBER = re.compile(r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
DIGITS = frozenset("0123456789")
MAX_DIGITS, MAX_DECIMALS = 15, 6
"""Within these bounds math-verify's comparison of floats, rounded to six places, is exact."""

PERCENT = ("%", "percent", "pct")


@dataclass(frozen=True, slots=True)
class Final:
    """A final answer as written.

    `marked`: it was announced, or is the whole text; `formula`: read it as one formula, instead of
    searching it for one.
    """

    text: str
    marked: bool
    formula: bool


def final_answer(text: str) -> Final:
    """Find the final answer of a worked solution, or of a reference."""
    text = text.replace(CURRENCY, "")
    padded = f"\n{text}"
    lowered = padded.translate(LOWER)
    found = {mark: lowered.rfind(mark) for mark in MARKS}
    found |= {label: _label(padded, lowered.rfind(label), label) for label in LABELS}
    mark = max(found, key=lambda name: found[name])
    boxed = padded.rfind(BOXED)
    if boxed >= 0 and boxed >= found[mark]:
        return Final(_braced(padded, boxed + len(BOXED)), marked=True, formula=True)
    if found[mark] >= 0:
        return _marked(_first_sentence(padded[found[mark] + len(mark) :]))
    whole = text.strip()
    if "\n" not in whole and _is_formula(whole.strip("$")):
        return _marked(whole)
    return Final(text[-LAST_CHARACTERS:], marked=False, formula=False)


def quick_equal(gold: Final, answer: Final) -> bool | None:
    """Compare plain numbers, and final answers that are written alike; None for others."""
    if gold.marked and answer.marked and _bare(gold.text) == _bare(answer.text) != "":
        return True
    right = _plain(gold.text)
    if right is None:
        return None
    if not DIGITS.intersection(answer.text) and "\\" not in answer.text:
        return False
    given = _plain(answer.text) if answer.marked else _last_plain(answer.text)
    return None if given is None else given == right


def _marked(text: str) -> Final:
    for opening, closing in (("$", "$"), ("\\(", "\\)")):
        inner = text.removeprefix(opening).removesuffix(closing)
        if text == f"{opening}{inner}{closing}" and opening not in inner:
            return Final(inner, marked=True, formula=True)
    return Final(text, marked=True, formula=_is_formula(text))


def _is_formula(text: str) -> bool:
    return "$" not in text and (text.startswith("\\") or not _has_word(text))


def _bare(text: str) -> str:
    """Return an answer without spaces, a final period and text commands."""
    bare = text.strip().removesuffix(".")
    if bare.startswith(TEXT) and bare.endswith("}"):
        bare = bare[len(TEXT) : -1]
    # Case matters in a formula, but not in a word.
    bare = bare.casefold() if _has_word(bare) else bare
    return " ".join(bare.replace("\\!", "").replace("\\,", "").split())


def _label(text: str, at: int, label: str) -> int:
    """Return `at` if the label introduces the text's last sentence, else -1."""
    rest = text[at + len(label) :].strip()
    return at if at >= 0 and "\n" not in rest and ". " not in rest else -1


def _braced(text: str, start: int) -> str:
    """Return the text from `start` to the brace that closes the one before it."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return text[start:]


def _first_sentence(text: str) -> str:
    """Return the first line that is not empty, up to the end of its first sentence."""
    line = text.lstrip(" \t\r\n:*").partition("\n")[0]
    return line.partition(". ")[0].strip().removesuffix(".").strip(" *")


def _has_word(text: str) -> bool:
    """Whether two letters stand side by side outside a LaTeX command."""
    letters = 0
    command = False
    for character in text:
        letters = letters + 1 if character.isalpha() and not command else 0
        command = character == "\\" or (command and character.isalpha())
        if letters > 1:
            return True
    return False


def _plain(text: str) -> Decimal | None:
    """Return the number that `text` is, alone or before a unit in words; None for all else."""
    bare = text.strip().removeprefix("$")
    match = NUMBER.match(bare)
    if match is None:
        return None
    unit = bare[match.end() :]
    if unit.startswith(".") and not unit.strip(". "):
        unit = ""
    plain_unit = not unit or (unit[0] == " " and all(c.isalpha() or c == " " for c in unit))
    if not plain_unit or unit.lower().strip().startswith(PERCENT):
        return None
    return _decimal(match.group())


def _last_plain(text: str) -> Decimal | None:
    """Return the last number of a text if it stands free of any formula; None for all else."""
    end = max(text.rfind(digit) for digit in DIGITS) + 1
    start = end - 1
    while start > 0 and text[start - 1] in "0123456789.,":
        start -= 1
    number = text[start:end]
    before, after = text[:start].rstrip(" \n"), text[end:]
    free = not before or before[-1] == "=" or (before[-1].isalpha() and before != text[:start])
    if not free or NUMBER.fullmatch(number) is None:
        return None
    tail = after.removeprefix(".")
    closed = not tail or (tail[0] in " \n" and all(c.isalpha() or c in " .,!\n'" for c in tail))
    if not closed or tail.lower().strip().startswith(PERCENT):
        return None
    return _decimal(number)


def _decimal(number: str) -> Decimal | None:
    digits = number.replace(",", "").removeprefix("-")
    whole, _, fraction = digits.partition(".")
    if len(whole) + len(fraction) > MAX_DIGITS or len(fraction) > MAX_DECIMALS:
        return None
    return Decimal(number.replace(",", ""))
