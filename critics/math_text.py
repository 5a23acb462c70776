r"""Normalises worked solutions to one script, and finds the quantities in them.

Full-width digits and punctuation become ASCII, numbers are separated from the ideographs around
them, 万 and 亿 are multiplied out, currency signs in front of numbers are dropped, dashes that are
minus signs become `-`, dashes of lists are removed, and "5 dollars and 50 cents" becomes "5.5
dollars". Ambiguous numbers stay unchanged: `3,5` may be a list, and `1.234` a decimal.

A quantity is a number in digits (`-1,234.5`, `$5`, `1/2`, `50%`), a number in words, or a short
formula (`$\sqrt{2}$`, `\frac{1}{2}`, `\boxed{3}`). The patterns expect text in small letters, and
each matches in time that is linear in the length of the text.
"""

import re
from decimal import Decimal

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SPELLED = {word: value for value, word in enumerate(ONES)} | {
    word: 10 * place for place, word in enumerate(TENS, start=2)
}
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}

_FIRST = "|".join(sorted(SPELLED, key=len, reverse=True))
_NEXT = f"{_FIRST}|{'|'.join(SCALES)}"
DIGITS = (
    r"[-+]?\$?[-+]?(?:\d[\d,]{0,20}(?<!,)(?:\.\d{1,20})?|\.\d{1,20})(?:\s?/\s?\d{1,9})?"
    r"(?:\s?\\?%|\s?percent\b)?(?:\s?\$(?![\w\\]))?(?![\d^\\{])"
)
IN_WORDS = rf"\b(?:{_FIRST})(?:[\s-](?:and\s)?(?:{_NEXT})){{0,9}}(?:\spercent)?\b"
FORMULA = (
    r"\$(?!\s)[^$\n]{1,80}(?<!\s)\$|\\\([^\n\\]{0,40}(?:\\[^)\n][^\n\\]{0,40}){0,9}\\\)|\\boxed\{[^{}\n]{1,80}\}"
    r"|[-+]?\\[dt]?frac\{[^{}\n]{1,40}\}\{[^{}\n]{1,40}\}|[-+]?\\sqrt\{[^{}\n]{1,40}\}"
)
QUANTITY = rf"[*_]{{0,2}}(?:{DIGITS}|{FORMULA}|{IN_WORDS})[*_]{{0,2}}"
UNIT = (
    r"(?:\s(?!(?:or|to|and|oder|ou|und|et|but|not|is|was|are|were|than|at|by)\b)"
    r"[^\W\d_]{1,20}){0,3}"
)
"""Up to three words between a quantity and the word that joins it to the next."""

CURRENCY = "\\$"
PLAIN = str.maketrans(
    {
        **{chr(wide): chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)},
        "。": ". ",
        "、": ", ",
        "\u3000": " ",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
        **dict.fromkeys("\u2010\u2011\u02d7\u2212\u2796\ufe63", "-"),
        **dict.fromkeys("\u2012\u2014\u2015\u2043\ufe58", "\u2013"),
        "【": " ",
        "】": " ",
    }
)
RANGE = re.compile(
    r"(?P<low>\d[\d,.]{0,20})(?P<dash>%?\s?\u2013\s?)(?=\$?(?P<high>\d[\d,.]{0,20}))"
)
"""A dash between two numbers: a range, or with spaces and a smaller second number a minus sign."""
MINUS = re.compile(
    r"(?:^|(?<=[\s(\[{=:,$*/+^|<>~\u2248\"'\u201c\u2018]))\u2013(?=\$?\.?\d|\\|\$[\w\\])"
    r"|(?<=[\w)\]}])\s?\u2013(?=\s[b-hj-np-z](?![^\W\d_])|[b-hj-np-z](?![^\W\d_])|\s?\\)"
    r"|(?:(?<=[)\]}])|(?<=^[A-Za-z])|(?<=[\W\d_][A-Za-z]))\s?\u2013(?=\s?\d)"
    r"|(?<=[A-Za-z])\u2013(?=[A-Za-z])"
)
"""A dash that can only be a minus sign or a hyphen, by its context."""
LIST_DASH = re.compile(
    r"^[ \t]{0,8}[-\u2013\u2022*][ \t]{1,4}(?=[*_$]{0,3}\d[\d,.]{0,20}[*_]{0,2}[ \t]+[^\W\d_]{2})",
    re.MULTILINE,
)
PARTS = {
    "dollar": ("cent", 100),
    "euro": ("cent", 100),
    "pound": ("penny|pence", 100),
    "hour": ("minute|min", 60),
    "minute": ("second|sec", 60),
    "foot|feet": ("inch|inche", 12),
    "kilogram": ("gram", 1000),
    "kilometer": ("meter", 1000),
    "meter": ("centimeter", 100),
    "week": ("day", 7),
    "year": ("month", 12),
}
"""The smaller unit in which the rest of an amount is stated, and how many make up one."""
COMPOUND = re.compile(
    r"(?P<number>\d[\d,]{0,20}|\b[a-z]{3,20})"
    rf"(?P<unit>\s(?P<name>{'|'.join(PARTS)})s?|(?<=\d))"
    r",?\s(?:and\s|\\?&\s)?(?P<count>\d{1,4}(?:/100(?!\d))?|zero|no)"
    rf"(?:\s(?P<part>{'|'.join(part for part, _ in PARTS.values())})s?\b|(?<=/100))",
    re.IGNORECASE,
)
FOREIGN = re.compile(r"\b(?:US|AU|CA|NZ|HK|A|C|S)\$(?=\d)")
SIGNS = re.compile(r"[€£¥₹₩₽](?=\s?-?\d)")
IDEOGRAPH = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
BEFORE = re.compile(rf"(?<=[{IDEOGRAPH}])(?=[-\d$\\])")
AFTER = re.compile(rf"(?<=[\d%$])(?=[{IDEOGRAPH}])")
MYRIADS = re.compile(r"(?<![\d.,])(\d{1,9}(?:\.\d{1,6})?)\s?([万萬亿億])(?!\s?[\d万萬亿億])")
WORTH = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
PERCENTAGE = re.compile(r"百分之\s?(\d+(?:\.\d+)?)")
MIXED = re.compile(
    r"(?<![\w.,/^{})])(?P<whole>\d{1,9})(?:\s{1,3}(?:and\s)?(?P<over>\d{1,9})\s?/\s?(?P<under>\d{1,9})(?![\d/.^])"
    r"|\s?\\[dt]?frac\s?(?:\{\s?(?P<top>\d{1,9})\s?\}|(?P<one>\d))\s?"
    r"(?:\{\s?(?P<bottom>\d{1,9})\s?\}|(?P<two>\d)))"
)


def as_western(text: str) -> str:
    """Return a text with the digits, the punctuation and the number words of one script."""
    text = text.replace(CURRENCY, "")
    if not text.isascii():
        text = MINUS.sub("-", RANGE.sub(_between, text.translate(PLAIN)))
        text = PERCENTAGE.sub(r" \1% ", MYRIADS.sub(_multiply_match, SIGNS.sub("", text)))
        text = AFTER.sub(" ", BEFORE.sub(" ", text))
    return COMPOUND.sub(_add_fraction, LIST_DASH.sub("", FOREIGN.sub("$", text)))


def _between(match: re.Match[str]) -> str:
    low, high = (float(match[name].replace(",", "").strip(".") or 0) for name in ("low", "high"))
    subtracts = low > high and " " in match["dash"]
    return match["low"] + (" - " if subtracts else match["dash"])


def _add_fraction(match: re.Match[str]) -> str:
    number, name, part = (match[key] and match[key].lower() for key in ("number", "name", "part"))
    count = match["count"].lower().removesuffix("/100")
    few = 0 if count in ("zero", "no") else int(count)
    if name is None:
        name = "dollar"
        if part not in (None, "cent"):
            return match[0]
    parts, size = next(of for names, of in PARTS.items() if name in names.split("|"))
    if part is not None and part not in parts.split("|"):
        return match[0]
    if few == 0:
        return f"{match['number']}{match['unit']}"
    if few >= size or not number.replace(",", "").isdecimal():
        return match[0]
    total = int(number.replace(",", "")) + Decimal(few) / size
    return f"{total:.6f}".rstrip("0") + match["unit"]


def _multiply_match(match: re.Match[str]) -> str:
    number = Decimal(match[1]) * WORTH[match[2]]
    return f"{number.normalize():f}"


def improper(text: str) -> str:
    """Return an answer with its mixed numbers (`2 1/2`) as one fraction each."""
    return MIXED.sub(_improper, text) if "/" in text or "frac" in text else text


def _improper(match: re.Match[str]) -> str:
    over = match["over"] or match["top"] or match["one"]
    under = match["under"] or match["bottom"] or match["two"]
    if int(over) == 0:
        return match["whole"]
    if over.startswith("0") or int(over) >= int(under):
        return match[0]
    return f"\\frac{{{int(match['whole']) * int(under) + int(over)}}}{{{under}}}"
