"""RunWarnings on checks, for refinement: the demand, and the finding in the answer."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from ..stores.records import Check
from .ifeval.demands import BULLET, DIVIDER
from .ifeval.families import FAMILIES, parameters
from .ifeval.sentences import sentences_of

Given = dict[str, Any]
"""A check's parameters, as IFEval names them, or its `argument`."""
WORD = re.compile(r"\w+")
SHOWN_WORDS = 6
"""Words of the answer's beginning or end that a remark quotes."""
ASKED: dict[str, str] = {
    "equals": "the answer {argument!r}",
    "ends_with": "to end with {argument!r}",
    "starts_with": "to start with {argument!r}",
    "contains": "to contain {argument!r}",
    "excludes": "not to contain {argument!r}",
    "json_equals": "the JSON {argument}",
    "json_valid": "valid JSON",
    "max_words": "at most {argument} words",
    "min_words": "at least {argument} words",
    "uppercase": "capital letters only",
    "lowercase": "lowercase letters only",
    "self_identifies": "to say the name {argument!r}",
    "keywords:existence": "the words {keywords}",
    "keywords:frequency": "the word {keyword!r} {relation} {frequency} times",
    "keywords:forbidden_words": "none of the words {forbidden_words}",
    "keywords:letter_frequency": "the letter {letter!r} {let_relation} {let_frequency} times",
    "language:response_language": "an answer in the language {language!r}",
    "length_constraints:number_sentences": "{relation} {num_sentences} sentences",
    "length_constraints:number_paragraphs": "{num_paragraphs} paragraphs, separated by ***",
    "length_constraints:number_words": "{relation} {num_words} words",
    "length_constraints:nth_paragraph_first_word": (
        "{num_paragraphs} paragraphs, number {nth_paragraph} starting with {first_word!r}"
    ),
    "detectable_content:number_placeholders": (
        "at least {num_placeholders} placeholders in square brackets"
    ),
    "detectable_content:postscript": "a postscript that starts with {postscript_marker}",
    "detectable_format:number_bullet_lists": "exactly {num_bullets} bullet points",
    "detectable_format:constrained_response": 'one of "My answer is yes.", "no." and "maybe."',
    "detectable_format:number_highlighted_sections": "at least {num_highlights} *highlights*",
    "detectable_format:multiple_sections": (
        "at least {num_sections} sections that start with {section_spliter!r} and a number"
    ),
    "detectable_format:json_format": "JSON only",
    "detectable_format:title": "a title in <<double angular brackets>>",
    "combination:two_responses": "two different answers, separated by ******",
    "combination:repeat_prompt": "first to repeat the request word for word",
    "startend:end_checker": "to end with {end_phrase!r}",
    "startend:quotation": "double quotation marks around the whole answer",
    "change_case:capital_word_frequency": (
        "{capital_relation} {capital_frequency} words in capitals"
    ),
    "change_case:english_capital": "English in capital letters only",
    "change_case:english_lowercase": "English in lowercase letters only",
    "punctuation:no_comma": "no commas",
}
"""By the kind of a check; the parameters are IFEval's, or the argument."""


def remark(check: Check, answer: str, *, met: bool) -> str:
    """Return the demand and, if the check is not met, the finding."""
    given: Given = {"argument": check.argument}
    if check.kind in FAMILIES:
        given |= parameters(check.kind, check.argument)
    shown = {
        n: _quote(cast("list[str]", v)) if isinstance(v, list) else v for n, v in given.items()
    }
    demand = f"Asked: {ASKED[check.kind].format(**shown)}."
    if met:
        return f"{demand} Met."
    if not answer.strip():
        return f"{demand} Not met: the answer is empty."
    look = FOUND.get(check.kind.rpartition(":")[2], lambda _answer, _given: "nothing of the kind")
    return f"{demand} Not met: it has {look(answer, given)}."


def _words(answer: str, _: Given) -> str:
    return f"{sum(1 for _ in WORD.finditer(answer))} words"


def _times(answer: str, given: Given) -> str:
    word: str = given.get("keyword") or given["letter"]
    return f"{_quote([word])} {answer.casefold().count(word.casefold())} times"


def _absent(answer: str, given: Given) -> str:
    return f"no {_quote(w for w in given['keywords'] if w.casefold() not in answer.casefold())}"


def _forbidden(answer: str, given: Given) -> str:
    return _quote(w for w in given["forbidden_words"] if w.casefold() in answer.casefold())


def _capitals(answer: str, _: Given) -> str:
    return f"capitals in {_quote([w for w in answer.split() if w != w.lower()][:3])}"


def _lowercase(answer: str, _: Given) -> str:
    return f"lowercase letters in {_quote([w for w in answer.split() if w != w.upper()][:3])}"


def _start(answer: str, _: Given) -> str:
    return f"the beginning {_quote([' '.join(answer.split()[:SHOWN_WORDS])])}"


def _end(answer: str, _: Given) -> str:
    return f"the end {_quote([' '.join(answer.split()[-SHOWN_WORDS:])])}"


def _quote(words: Iterable[str]) -> str:
    return ", ".join(json.dumps(word, ensure_ascii=False) for word in words)


FOUND: dict[str, Callable[[str, Given], str]] = {
    "number_words": _words,
    "max_words": _words,
    "min_words": _words,
    "number_sentences": lambda answer, _: f"{sum(1 for _ in sentences_of(answer))} sentences",
    "number_paragraphs": lambda answer, _: f"{len(DIVIDER.findall(answer)) + 1} paragraphs",
    "number_bullet_lists": lambda answer, _: f"{len(BULLET.findall(answer))} bullet points",
    "no_comma": lambda answer, _: f"{answer.count(',')} commas",
    "frequency": _times,
    "letter_frequency": _times,
    "existence": _absent,
    "forbidden_words": _forbidden,
    "lowercase": _capitals,
    "english_lowercase": _capitals,
    "uppercase": _lowercase,
    "english_capital": _lowercase,
    "starts_with": _start,
    "repeat_prompt": _start,
    "ends_with": _end,
    "end_checker": _end,
    "quotation": lambda answer, given: f"{_start(answer, given)} and {_end(answer, given)}",
    "excludes": lambda _, given: _quote([given["argument"]]),
}
"""Descriptions of the finding in an answer, by the last part of a check's kind."""
