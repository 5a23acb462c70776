"""IFEval's families of verifiable instructions by name, and how an answer is checked by one.

The argument of such a check is JSON: the parameters as IFEval names them, or empty without any. The
authors' code draws a missing or impossible parameter at random; here it is refused, since an answer
would be checked against a demand that its prompt does not make.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from ...configs.schema import ConfigError
from . import demands
from .demands import AT_LEAST, LESS_THAN

Reader = Callable[[object], object]
"""Reads a parameter, or raises ConfigError with the expected type."""
LANGUAGES = (
    *("af", "ar", "bg", "bn", "ca", "cs", "cy", "da", "de", "el", "en", "es", "et", "fa", "fi"),
    *("fr", "gu", "he", "hi", "hr", "hu", "id", "it", "ja", "kn", "ko", "lt", "lv", "mk", "ml"),
    *("mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk", "sl", "so", "sq", "sv", "sw"),
    *("ta", "te", "th", "tl", "tr", "uk", "ur", "vi", "zh-cn", "zh-tw"),
)
"""The languages that langdetect recognises."""


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


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of instruction: its check function, and its parameters by name."""

    decides: Callable[..., bool]
    parameters: Mapping[str, Reader] = field(default_factory=dict[str, Reader])


FAMILIES: Mapping[str, Family] = {
    "keywords:existence": Family(demands.has_keywords, {"keywords": texts}),
    "keywords:frequency": Family(
        demands.has_keyword_often,
        {"keyword": a_text, "frequency": a_number, "relation": a_relation},
    ),
    "keywords:forbidden_words": Family(demands.avoids_words, {"forbidden_words": texts}),
    "keywords:letter_frequency": Family(
        demands.has_letter_often,
        {"letter": a_letter, "let_frequency": a_number, "let_relation": a_relation},
    ),
    "language:response_language": Family(demands.is_in_language, {"language": a_language}),
    "length_constraints:number_sentences": Family(
        demands.has_sentences, {"num_sentences": a_number, "relation": a_relation}
    ),
    "length_constraints:number_paragraphs": Family(
        demands.has_paragraphs, {"num_paragraphs": a_number}
    ),
    "length_constraints:number_words": Family(
        demands.has_words, {"num_words": a_number, "relation": a_relation}
    ),
    "length_constraints:nth_paragraph_first_word": Family(
        demands.has_first_word,
        {"num_paragraphs": a_place, "nth_paragraph": a_place, "first_word": a_text},
    ),
    "detectable_content:number_placeholders": Family(
        demands.has_placeholders, {"num_placeholders": a_number}
    ),
    "detectable_content:postscript": Family(demands.has_postscript, {"postscript_marker": a_text}),
    "detectable_format:number_bullet_lists": Family(demands.has_bullets, {"num_bullets": a_number}),
    "detectable_format:constrained_response": Family(demands.is_one_of_the_answers),
    "detectable_format:number_highlighted_sections": Family(
        demands.has_highlights, {"num_highlights": a_number}
    ),
    "detectable_format:multiple_sections": Family(
        demands.has_sections, {"section_spliter": a_text, "num_sections": a_number}
    ),
    "detectable_format:json_format": Family(demands.is_json),
    "detectable_format:title": Family(demands.has_title),
    "combination:two_responses": Family(demands.is_two_responses),
    "combination:repeat_prompt": Family(demands.repeats_prompt, {"prompt_to_repeat": a_text}),
    "startend:end_checker": Family(demands.ends_with_phrase, {"end_phrase": a_text}),
    "startend:quotation": Family(demands.is_quoted),
    "change_case:capital_word_frequency": Family(
        demands.has_capital_words, {"capital_frequency": a_number, "capital_relation": a_relation}
    ),
    "change_case:english_capital": Family(demands.is_english_in_capitals),
    "change_case:english_lowercase": Family(demands.is_english_in_small_letters),
    "punctuation:no_comma": Family(demands.has_no_comma),
}
BY_LANGUAGE = frozenset(
    {
        "language:response_language",
        "change_case:english_capital",
        "change_case:english_lowercase",
    }
)
"""The families that langdetect decides."""


def follows(answer: str, kind: str, argument: str) -> bool:
    """Return whether an answer follows an instruction strictly; an empty one follows none."""
    return bool(answer.strip()) and FAMILIES[kind].decides(answer, **parameters(kind, argument))


@lru_cache(maxsize=4096)
def parameters(kind: str, argument: str) -> Mapping[str, object]:
    """Return the parameters that an argument holds.

    Raises:
        ConfigError: if one is missing, unknown or of the wrong type.
    """
    needed = FAMILIES[kind].parameters
    given = _object(kind, argument)
    for name in given:
        if name not in needed:
            takes = ", ".join(needed) or "no parameters"
            raise ConfigError(f"check {kind!r} does not know {name!r}; it takes {takes}")
    read = {name: _read(kind, name, reader, given) for name, reader in needed.items()}
    _require_paragraph(kind, read)
    return read


def canonical_argument(kind: str, argument: str) -> str:
    """Return the same argument for the same parameters: JSON, or empty without parameters.

    Raises:
        ConfigError: if the argument does not fit the kind.
    """
    read = parameters(kind, argument)
    return json.dumps(dict(read), sort_keys=True, ensure_ascii=False) if read else ""


def _require_paragraph(kind: str, read: Mapping[str, object]) -> None:
    match read:
        case {"nth_paragraph": int(place), "num_paragraphs": int(number)} if place > number:
            raise ConfigError(f"check {kind!r}: paragraph {place} of {number} does not exist")
        case _:
            pass


def _read(kind: str, name: str, reader: Reader, given: Mapping[str, object]) -> object:
    if name not in given:
        raise ConfigError(f"check {kind!r} lacks its parameter {name!r}")
    try:
        return reader(given[name])
    except ConfigError as error:
        raise ConfigError(
            f"check {kind!r}: {name!r} must be {error}, not {json.dumps(given[name])[:60]}"
        ) from error


def _object(kind: str, argument: str) -> dict[str, object]:
    """Return the fields of a JSON object; null fields count as absent."""
    try:
        value = json.loads(argument or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(
            f"check {kind!r} needs its parameters as a JSON object, not {argument[:60]!r}"
        )
    return {
        name: item for name, item in cast("dict[str, object]", value).items() if item is not None
    }
