"""The parameters of IFEval's instructions: their types, and the comparison of counts.

The authors' code draws a missing or impossible parameter at random; here it is refused, since an
answer would be checked against a demand that its prompt does not make.
"""

from collections.abc import Iterable
from itertools import islice
from typing import cast

from ...configs.schema import ConfigError

LESS_THAN, AT_LEAST = "less than", "at least"
LANGUAGES = (
    *("af", "ar", "bg", "bn", "ca", "cs", "cy", "da", "de", "el", "en", "es", "et", "fa", "fi"),
    *("fr", "gu", "he", "hi", "hr", "hu", "id", "it", "ja", "kn", "ko", "lt", "lv", "mk", "ml"),
    *("mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk", "sl", "so", "sq", "sv", "sw"),
    *("ta", "te", "th", "tl", "tr", "uk", "ur", "vi", "zh-cn", "zh-tw"),
)
"""The languages that langdetect recognises."""


def compare_count(found: Iterable[object], relation: str, bound: int) -> bool:
    """Whether there are at least `bound` finds, or fewer; the search ends at `bound`."""
    reached = sum(1 for _ in islice(found, bound)) == bound
    return reached == (relation == AT_LEAST)


def a_text(value: object) -> str:
    """Return a non-empty text, without the space around it."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError("a text")
    return value.strip()


def texts(value: object) -> list[str]:
    """Return one text or more."""
    if not isinstance(value, list) or not value:
        raise ConfigError("a list of texts")
    items = cast("list[object]", value)
    if not all(isinstance(text, str) and text.strip() for text in items):
        raise ConfigError("a list of texts")
    return cast("list[str]", items)


def a_number(value: object) -> int:
    """Return a whole number from 0; JSON written by a data frame has 3.0 for 3."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or cast("float", value) < 0:
        raise ConfigError("a whole number from 0")
    return int(cast("float", value))


def a_place(value: object) -> int:
    """Return a whole number from 1."""
    if a_number(value) == 0:
        raise ConfigError("a whole number from 1")
    return a_number(value)


def a_relation(value: object) -> str:
    """Return how a count is compared."""
    if value not in (LESS_THAN, AT_LEAST):
        raise ConfigError(f"{LESS_THAN!r} or {AT_LEAST!r}")
    return str(value)


def a_letter(value: object) -> str:
    """Return one character, in lower case."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ConfigError("one letter")
    return value.strip().lower()


def a_language(value: object) -> str:
    """Return the code of a language that the detector can recognise."""
    if value not in LANGUAGES:
        raise ConfigError(f"the code of a language ({', '.join(LANGUAGES)})")
    return str(value)
