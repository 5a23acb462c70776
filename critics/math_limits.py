r"""Limits that find answers too large to compare in microseconds.

A symbolic comparison of `9^{9^{9^9}}`, of a hundred brackets or of a long sum takes until its
deadline. Serious answers by people and models are far below these limits. Answers within the limits
are still compared under the deadline.
"""

import math
import re

from .math_answers import Final

LENGTH = 600
"""Characters of one formula, digits and the words of `\\text` not counted."""
OPERATORS = 64
"""The limit of signs between the parts of one formula: a list of as many numbers is the longest."""
DEPTH = 10
"""Brackets within brackets."""
DIGITS = 100_000.0
"""The limit of digits of a formula's value: powers and factorials of numbers."""
EXPANDED = 100.0
"""The power of a sum of variables."""
MANTISSA = 15

WORDS = re.compile(r"\\(?:text|mbox|mathrm|textbf|operatorname)\s*\{[^{}]*\}")
PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}|\$|\n")
"""Separators of a text's formulas: a word (not the name of a command), a dollar, a line's end."""
SIGNS = re.compile(r"[-+*/^=,&;<>]|\\(?:times|cdot|div|frac|dfrac|tfrac|sqrt|pm|cup|cap)\b")
TOKEN = re.compile(r"\\[A-Za-z]+|\d[\d,]*(?:\.\d+)?|\*\*|\S")
NUMERAL = re.compile(r"[\d\s]+")
RAISING = ("^", "**")
OPENING, CLOSING = "([{", ")]}"
BINOMIALS = frozenset(("\\binom", "\\dbinom", "\\tbinom"))


def too_large(final: Final) -> bool:
    """Whether the formula of a final answer, or any in a text, is larger than is compared."""
    text = WORDS.sub(" ", final.text)
    parts = [text] if final.formula else PROSE.split(text)
    return any(_too_large(part) for part in parts)


def _too_large(formula: str) -> bool:
    if len(NUMERAL.sub("", formula)) > LENGTH:
        return True
    tokens = TOKEN.findall(formula.replace("\\left", "").replace("\\right", ""))
    if len(SIGNS.findall(formula)) > OPERATORS or _depth(tokens) > DEPTH:
        return True
    return _Sizes(tokens).of_all() > DIGITS


def _depth(tokens: list[str]) -> int:
    deepest = depth = 0
    for token in tokens:
        depth += (token in OPENING) - (token in CLOSING)
        deepest = max(deepest, depth)
    return deepest


class _Sizes:
    """Bounds the digits of the numbers in a formula's value; a variable counts as 1.

    A sum is bounded like a product, so every number is within its bound; `inf` is too large.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def of_all(self) -> float:
        """Return the bound for the whole formula."""
        largest = 0.0
        while self.at < len(self.tokens):
            largest = max(largest, self._group()[0])
            self.at += 1
        return largest

    def _group(self) -> tuple[float, bool]:
        """Return the bound up to the closing bracket, and whether it is a sum with variables."""
        total = 0.0
        sums = letters = False
        while self.at < len(self.tokens) and self.tokens[self.at] not in CLOSING:
            part = self.tokens[self.at]
            self.at += 1
            if part in RAISING:
                continue
            sums |= part in "+-"
            letters |= part.isalpha()
            size, expands = self._atom(part)
            total += self._raise_bound(size, expands=expands)
        return total, sums and letters

    def _atom(self, token: str) -> tuple[float, bool]:
        """Return the bound of a number or of a bracket that begins with `token`."""
        if token in OPENING:
            found = self._group()
            self.at += 1
            return found
        if token in BINOMIALS:
            of, _ = self._next()
            self._next()
            return _power(of) * math.log10(2), False
        if token[0].isdecimal():
            whole = token.replace(",", "").partition(".")[0]
            return (len(whole) if len(whole) > MANTISSA else math.log10(max(int(whole), 1))), False
        return 0.0, False

    def _next(self) -> tuple[float, bool]:
        if self.at >= len(self.tokens) or self.tokens[self.at] in CLOSING:
            return 0.0, False
        self.at += 1
        return self._atom(self.tokens[self.at - 1])

    def _raise_bound(self, digits: float, *, expands: bool) -> float:
        """Return the bound of a number with `digits`, after the powers and factorials behind it."""
        while self.at < len(self.tokens) and self.tokens[self.at] in (*RAISING, "!"):
            sign = self.tokens[self.at]
            self.at += 1
            if sign == "!":
                digits = _power(digits) * max(digits, 0.0)
                continue
            while self.at < len(self.tokens) and self.tokens[self.at] in "-+":
                self.at += 1
            exponent = _power(self._raise_bound(self._next()[0], expands=False))
            if expands and exponent > EXPANDED:
                return math.inf
            digits = digits * exponent
        return digits


def _power(digits: float) -> float:
    """Return the number with `digits` digits (its logarithm is `digits`)."""
    return 10.0**digits if digits < 300 else math.inf  # noqa: PLR2004 -- the largest float
