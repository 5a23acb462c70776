r"""Patterns of quantities in text, for the readers of worked solutions.

A quantity is a number in digits (`-1,234.5`, `$5`, `1/2`, `50%`), a number in words, or a short
formula (`$\sqrt{2}$`, `\frac{1}{2}`, `\boxed{3}`). The patterns expect text in small letters, and
each matches in time that is linear in the length of the text.
"""

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
