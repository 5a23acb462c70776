r"""The quick comparison of final answers: plain numbers, and words.

All else is left to math-verify (`math_pool`), whose verdict on plain numbers the quick comparison
never contradicts. If math-verify reads a number differently, the reference decides:

- a percentage `50%` is met by `50` and by `0.5`; a number above 1, or a whole one, by the same
  number of percent, as questions for a percentage have references without the sign; `0.5` by `50%`;
- `2 million` is 2,000,000, and 2 if the reference has no such word; `3,5` is 3.5 if the other side
  is that number, since a list of two numbers would be wrong in any case.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from .math_answers import Final, has_word
from .math_text import SCALES, SPELLED

NUMBER = re.compile(
    r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?"
    r"|[1-9][0-9]{0,2}(?:[ '\u2019][0-9]{3})+(?![0-9])(?:[.,][0-9]+)?"
    r"|[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}(?![0-9])"
    r"|[0-9]+(?:\.[0-9]+)?)"
)
POINTED = re.compile(r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
COMMA = re.compile(r"(-?[0-9]+),([0-9]+)(?![0-9,.])")
DIGITS = frozenset("0123456789")
MAX_DIGITS, MAX_DECIMALS = 15, 6
"""Within these bounds math-verify's comparison of floats, rounded to six places, is exact."""
LONGEST = 200
"""How many characters a plain number with its unit has at the most."""

PERCENT = ("%", "\\%", "percent", "pct")
UNIT_LETTERS = frozenset("ACFJKLNVWdghlmsµ")
UNIT = re.compile(
    r"(?P<degrees>\s?\^?\{?(?:°|º|\\circ)\}?\s?[CFK]?|[€£¥]|\s)?"
    r"(?:\s?(?P<unit>[^\W\d_]+)\.?(?P<power>[²³]|\^\{?[23]\}?)?"
    r"(?P<other>\s?[/·]\s?(?P<per>[^\W\d_]+)(?:[²³]|\^\{?[23]\}?)?)?)?[\s.]*"
)
"""A unit of one word with its signs, which `_is_unit` does not read: km/h, m², m^2, °C, €."""
FRACTION_UNIT = re.compile(r"\\[dt]?frac\s?\{([A-Za-z]+)\}\s?\{([A-Za-z]+)\}")
PREFIX = re.compile(
    r"([-+]?)(?:\s?\$|(?:~|≈|\\approx|about|around|approximately|roughly|exactly|just|only|simply"
    r"|indeed|equal\sto|therefore|thus)\s?(?=[-+$\d])\$?)\s?"
)
"""A dollar sign, or words that do not change which number is stated."""
NO_UNIT = frozenset(("of", "or", "and", "to", "more", "less", "over", "point"))
COMMANDS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|textnormal)\s?\{([^{}]*)\}")
SPACES = re.compile(r"\\[!,;: ]|~")
CHOICE = re.compile(
    r"(?:option|choice|选项?)?\s?(?:\(([A-Ja-j])\)|([A-J])(?![^\W_]))(?=$|[).:,;\s])"
    r"(?!\s?[-+*/^=]|,?\s(?:or|and|oder|und|ou|et)\b)"
)
REMARK = re.compile(r"\s?[,;:.(]|\s(?:because|since|as)\b")
DENIALS = ("not", "nicht", "non", "no", "isn't", "不", "不是")
LETTERS_OF_A_WORD = 4


@dataclass(frozen=True, slots=True)
class PlainNumber:
    """A number as written, whether it is a percentage, and the factor of a word such as million."""

    value: Decimal
    percent: bool = False
    scale: int = 1


def quick_equal(reference: Final, answer: Final) -> bool | None:
    """Compare plain numbers, words, and answers that are written alike; None for others."""
    if not answer.text:
        return False
    alike = _alike(reference, answer) if reference.marked else None
    if alike is not None:
        return alike
    right = _plain(reference.text)
    if right is None:
        return _with_comma(answer, reference) or None
    given = _plain(answer.text) if answer.marked else _last_plain(answer.text)
    if given is not None:
        return _same(right, given)
    if not DIGITS.intersection(answer.text) and "\\" not in answer.text:
        return False
    return _with_comma(reference, answer) or None


def _alike(reference: Final, answer: Final) -> bool | None:
    """Compare texts as written: whole numbers, equal texts, words; None if that is not enough."""
    if answer.marked:
        if _is_count(reference.text) and _is_count(answer.text):
            return int(reference.text) == int(answer.text)
        if _bare(reference.text) == _bare(answer.text) != "":
            return True
    return _compare_words(reference, answer)


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= MAX_DIGITS


def _same(right: PlainNumber, given: PlainNumber) -> bool:
    if right.percent != given.percent:
        share = (right if right.percent else given).value / 100
        whole = right.value == right.value.to_integral_value()
        other = given.value if right.percent else right.value
        alike = right.value == given.value and (right.percent or whole or abs(right.value) > 1)
        return alike or share == other
    if (
        right.scale != given.scale
        and 1 in (right.scale, given.scale)
        and right.value == given.value
    ):
        return True
    return right.value * right.scale == given.value * given.scale


def _with_comma(plain: Final, listed: Final) -> bool:
    """Whether one side is a number with a decimal comma, the other the same with a point."""
    number = COMMA.match(listed.text.strip().removeprefix("$"))
    right = _plain(plain.text) if plain.marked else None
    if number is None or right is None or not listed.marked:
        return False
    return Decimal(f"{number[1]}.{number[2]}") == right.value


def _compare_words(reference: Final, answer: Final) -> bool | None:
    """Compare words and the letters of choices; None if the reference is neither."""
    number = _bare(reference.text)
    letter = CHOICE.fullmatch(number.upper()) if len(number) <= len("(A)") else None
    if letter is not None:
        given = CHOICE.match(_unmarked_up(answer.text)) if answer.marked else None
        return None if given is None else _letter(given) == _letter(letter)
    if any(not (c.isalpha() or c in " -'\u2019.,") for c in number) or not has_word(number):
        return None
    if _parse_spelled(number) is not None:
        return None
    given_words = _unmarked_up(answer.text).casefold()
    if answer.marked:
        rest = given_words.removeprefix(number)
        found = rest != given_words and (not rest or REMARK.match(rest) is not None)
    else:
        before = given_words.rstrip(" .!*\n").removesuffix(number)
        found = before != given_words.rstrip(" .!*\n") and _affirms(before)
    sure = "\\text" in reference.text or len(number) >= LETTERS_OF_A_WORD
    return found or (False if sure else None)


def _affirms(before: str) -> bool:
    words = before.split()
    return not before[-1:].isalnum() and not (words and words[-1] in DENIALS)


def _letter(choice: re.Match[str]) -> str:
    return (choice[1] or choice[2]).upper()


def _unmarked_up(text: str) -> str:
    """Return an answer without text commands, emphasis, and the spaces of LaTeX."""
    if "\\" in text:
        text = SPACES.sub("", COMMANDS.sub(r"\1", text))
    return text.strip(" *_\"'“”").removesuffix(".").strip()


def _bare(text: str) -> str:
    """Return an answer that can be compared as a text: words whatever their case."""
    bare = _unmarked_up(text).replace("\u2013", "-")
    # Case matters in a formula, but not in a word.
    bare = bare.casefold() if has_word(bare) else bare
    return " ".join(bare.split())


def _plain(text: str) -> PlainNumber | None:
    """Return the number that `text` is, alone or before a unit in words; None for all else."""
    if len(text) > LONGEST:
        return None
    bare = PREFIX.sub(r"\1", _unmarked_up(text.replace("{,}", ",")), count=1)
    match = NUMBER.match(bare.removeprefix("+"))
    if match is None:
        return _parse_spelled(bare.casefold())
    value = _decimal(match.group())
    return None if value is None else _with_unit(value, bare[match.end() :])


def plain_value(text: str) -> Decimal | None:
    """Return the value of a number in digits or words, a unit or a percent sign not counted."""
    plain = _plain(text)
    return None if plain is None else plain.value * plain.scale


def _with_unit(value: Decimal, unit: str) -> PlainNumber | None:
    if unit.startswith(".") and not unit.strip(". "):
        unit = ""
    name = unit.strip().removeprefix("$").casefold()
    for sign in PERCENT:
        if name.startswith(sign) and _is_unit(name.removeprefix(sign)):
            return PlainNumber(value, percent=True)
    if name and not (unit[0] in " $" and _is_unit(name)) and not _is_compound_unit(unit):
        return None
    return PlainNumber(value, scale=SCALES.get(name.partition(" ")[0], 1))


def _is_compound_unit(text: str) -> bool:
    """Whether a text is a unit with signs: `km/h`, `m²`, `°C`, `€`, and not a product `x/y`."""
    found = UNIT.fullmatch(FRACTION_UNIT.sub(r" \1/\2", text).rstrip("$"))
    if found is None or not (found["degrees"] or found["power"] or found["other"]):
        return False
    parts = [part for part in (found["unit"], found["per"]) if part]
    return all(len(part) > 1 or part in UNIT_LETTERS for part in parts)


def _is_unit(text: str) -> bool:
    return all(c.isalpha() or c in " ." for c in text)


def _parse_spelled(text: str) -> PlainNumber | None:
    """Return the number that words spell out, alone or before a unit."""
    words = text.replace("-", " ").split()
    total = part = 0
    read = 0
    for word in words:
        if word in SPELLED:
            part += SPELLED[word]
        elif word == "hundred" and part:
            part *= SCALES[word]
        elif word in SCALES and part:
            total, part = total + part * SCALES[word], 0
        elif not (word == "and" and read and words[read - 1] in SCALES):
            break
        read += 1
    unit = words[read:]
    if not read or words[0] not in SPELLED or (unit and unit[0] in NO_UNIT):
        return None
    percent = bool(unit) and unit[0] in PERCENT
    unit = unit[1:] if percent else unit
    return PlainNumber(Decimal(total + part), percent) if _is_unit(" ".join(unit)) else None


def _last_plain(text: str) -> PlainNumber | None:
    """Return the last number of a text if it is not part of a formula; None for all else."""
    end = max(text.rfind(digit) for digit in DIGITS) + 1
    start = end - 1
    while start > 0 and text[start - 1] in "0123456789.,":
        start -= 1
    number = text[start:end]
    before, after = text[:start].rstrip(" \n"), text[end:]
    free = not before or before[-1] == "=" or (before[-1].isalpha() and before != text[:start])
    if not free or POINTED.fullmatch(number) is None:
        return None
    tail = after.removeprefix(".")
    closed = not tail or (tail[0] in " \n" and all(c.isalpha() or c in " .,!\n'" for c in tail))
    if not closed or tail.lower().strip().startswith(PERCENT):
        return None
    value = _decimal(number)
    return None if value is None else PlainNumber(value)


def _decimal(number: str) -> Decimal | None:
    if POINTED.fullmatch(number) is None:
        number = re.sub(r"[ '\u2019]", "", number)
        number = (
            number.replace(".", "").replace(",", ".")
            if number.find(",") > 0 or (number.count(".") > 1)
            else number
        )
    number = number.replace(",", "")
    whole, _, fraction = number.removeprefix("-").partition(".")
    if len(whole) + len(fraction) > MAX_DIGITS or len(fraction) > MAX_DECIMALS:
        return None
    return Decimal(number)
