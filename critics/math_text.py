r"""Worked solutions as one script writes them, so that marks and numbers are found in all.

Full-width digits and punctuation become ASCII, numbers stand apart from the ideographs around them,
万 and 亿 are multiplied out, and currency signs in front of numbers are dropped. Only what can be
read in one way is touched: `3,5` may be a list, and `1.234` a decimal.
"""

import re
from decimal import Decimal

CURRENCY = "\\$"
WIDE = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
PLAIN = str.maketrans(
    {
        **{chr(wide): chr(narrow) for wide, narrow in WIDE.items()},
        "。": ". ",
        "、": ", ",
        "\u3000": " ",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
        "\u2212": "-",
        "【": " ",
        "】": " ",
    }
)
SIGNS = re.compile(r"[€£¥₹₩₽](?=\s?-?\d)")
IDEOGRAPH = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
BEFORE = re.compile(rf"(?<=[{IDEOGRAPH}])(?=[-\d$\\])")
AFTER = re.compile(rf"(?<=[\d%$])(?=[{IDEOGRAPH}])")
MYRIADS = re.compile(r"(?<![\d.,])(\d{1,9}(?:\.\d{1,6})?)\s?([万萬亿億])(?!\s?[\d万萬亿億])")
WORTH = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
PERCENTAGE = re.compile(r"百分之\s?(\d+(?:\.\d+)?)")
MIXED = re.compile(
    r"(?<![\w.,/^{})])(?P<whole>\d{1,9})(?:\s{1,3}(?P<over>\d{1,9})\s?/\s?(?P<under>\d{1,9})(?![\d/.^])"
    r"|\s?\\[dt]?frac\s?(?:\{\s?(?P<top>\d{1,9})\s?\}|(?P<one>\d))\s?"
    r"(?:\{\s?(?P<bottom>\d{1,9})\s?\}|(?P<two>\d)))"
)


def as_western(text: str) -> str:
    """Return a text with the digits, the punctuation and the number words of one script."""
    text = text.replace(CURRENCY, "")
    if text.isascii():
        return text
    text = SIGNS.sub("", text.translate(PLAIN))
    text = PERCENTAGE.sub(r" \1% ", MYRIADS.sub(_multiplied, text))
    return AFTER.sub(" ", BEFORE.sub(" ", text))


def _multiplied(match: re.Match[str]) -> str:
    number = Decimal(match[1]) * WORTH[match[2]]
    return f"{number.normalize():f}"


def improper(text: str) -> str:
    """Return an answer with its mixed numbers (`2 1/2`) as one fraction each."""
    return MIXED.sub(_improper, text) if "/" in text or "frac" in text else text


def _improper(match: re.Match[str]) -> str:
    over = match["over"] or match["top"] or match["one"]
    under = match["under"] or match["bottom"] or match["two"]
    if over.startswith("0") or int(over) >= int(under):
        return match[0]
    return f"\\frac{{{int(match['whole']) * int(under) + int(over)}}}{{{under}}}"
