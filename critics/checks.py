"""Verifiable demands on an answer (`stores.records.Check`), each decided by a small function.

Texts are compared with white space normalised, and `equals` and `ends_with` ignore a final period.
`contains`, `excludes` and `self_identifies` ignore case; the other kinds do not.

IFEval's families (`ifeval.demands`) are further kinds, under IFEval's names. Their argument is
JSON: the parameters as IFEval names them, or empty without any. The authors' code draws a missing
or impossible parameter at random; here it is refused, since an answer would be checked against a
demand that its prompt does not make.

For refinement, `remark` tells the demand and the finding in an answer.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, cast, get_type_hints

from pydantic import ValidationError, create_model

from ..configs.mistakes import ConfigError
from ..configs.pools import fault
from ..configs.section import Section
from ..stores.records import Check
from .ifeval import demands
from .ifeval.demands import BULLET, DIVIDER, refuse_constant
from .ifeval.languages import require_langdetect
from .ifeval.sentences import sentences_of
from .reply_schema import distinct_fields

NO_VALUE = object()
FENCE = "```"
LONGEST = 200_000
WORD = re.compile(r"\w+")
SHOWN_WORDS = 6
"""Words of the answer's beginning or end that a remark quotes."""
Given = Mapping[str, Any]
"""A check's parameters, as IFEval names them, or its `argument`."""


def _nothing(_answer: str, _given: Given) -> str:
    return "nothing of the kind"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of check is decided, and the words for the demand and for the finding.

    `decides` takes an answer and the argument; of IFEval's families, the parameters by name.
    """

    decides: Callable[..., bool]
    asked: str
    found: Callable[[str, Given], str] = _nothing


def valid_check(kind: str, argument: str) -> Check:
    """Return a check that can be decided; the same parameters make the same check.

    Raises:
        ConfigError: if the kind is unknown or the argument does not fit it.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"unknown check {kind!r}; the kinds are {', '.join(CHECKS)}, and IFEval's families, "
            "such as punctuation:no_comma (all are in docs/checks.md)"
        )
    if kind in FAMILIES:
        read = parameters(kind, argument)
        text = json.dumps(dict(read), sort_keys=True, ensure_ascii=False) if read else ""
        return Check(kind=kind, argument=text)
    if kind in COUNTS and not (argument.isascii() and argument.isdigit()):
        raise ConfigError(f"check {kind!r} needs a number of words, not {argument!r}")
    if kind in TEXTS and not argument.strip():
        raise ConfigError(f"check {kind!r} needs a text")
    if kind == "json_equals" and read_json(argument) is NO_VALUE:
        raise ConfigError(f"check 'json_equals' needs JSON, not {argument!r}")
    return Check(kind=kind, argument=argument)


def fulfils(answer: str, check: Check) -> bool:
    """Return whether `answer` meets `check`; an empty one meets none of IFEval's."""
    decides = KINDS[check.kind].decides
    if check.kind in FAMILIES:
        return bool(answer.strip()) and decides(answer, **parameters(check.kind, check.argument))
    return decides(answer, check.argument)


def fulfils_loosely(answer: str, check: Check) -> bool:
    """Return whether `answer`, or a version without its wrapping, meets `check`.

    IFEval's loose accuracy: without its first line, its last line or both, and each of these
    without asterisks, as models wrap an answer ("Sure, here it is:"). An answer of more than
    `LONGEST` characters is checked only unchanged: all eight versions of it would take seconds.
    """
    if len(answer) > LONGEST:
        return fulfils(answer, check)
    lines = answer.split("\n")
    parts = (lines[1:], lines[:-1], lines[1:-1])
    texts = [answer, *("\n".join(part).strip() for part in parts)]
    plain = [text.replace("*", "") for text in texts]
    return any(fulfils(text, check) for text in dict.fromkeys([*texts, *plain]) if text.strip())


def remark(check: Check, answer: str, *, met: bool) -> str:
    """Return the demand and, if the check is not met, the finding."""
    given: dict[str, Any] = {"argument": check.argument}
    if check.kind in FAMILIES:
        given |= parameters(check.kind, check.argument)
    shown = {
        n: _quote(cast("list[str]", v)) if isinstance(v, list) else v for n, v in given.items()
    }
    demand = f"Asked: {KINDS[check.kind].asked.format(**shown)}."
    if met:
        return f"{demand} Met."
    if not answer.strip():
        return f"{demand} Not met: the answer is empty."
    return f"{demand} Not met: it has {KINDS[check.kind].found(answer, given)}."


def require_deciders(checks: Iterable[Check]) -> None:
    """Refuse checks that need a library that is not installed.

    Raises:
        ConfigError: with the remedy.
    """
    if any(check.kind in BY_LANGUAGE for check in checks):
        require_langdetect()


@lru_cache(maxsize=4096)
def parameters(kind: str, argument: str) -> Given:
    """Return the parameters that the argument of a check of one of IFEval's families holds.

    Raises:
        ConfigError: if one is missing, unknown or of the wrong type.
    """
    try:
        value = json.loads(argument or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(
            f"check {kind!r} needs its parameters as a JSON object, not {argument[:60]!r}"
        )
    # IFEval's rows state the parameters of other families as null.
    given = {n: item for n, item in cast("dict[str, object]", value).items() if item is not None}
    model = parameters_of(kind)
    try:
        read = model.model_validate(given).model_dump()
    except ValidationError as error:
        raise ConfigError(f"check {kind!r}: {fault(error, model)}") from error
    if "nth_paragraph" in read and read["nth_paragraph"] > read["num_paragraphs"]:
        raise ConfigError(
            f"check {kind!r}: paragraph {read['nth_paragraph']} of {read['num_paragraphs']} does "
            "not exist"
        )
    return read


@cache
def parameters_of(kind: str) -> type[Section]:
    """Return the parameters of one of IFEval's families, those of its function, as a model."""
    hints = get_type_hints(FAMILIES[kind].decides, include_extras=True)
    fields: dict[str, Any] = {
        n: (t, ...) for n, t in hints.items() if n not in ("answer", "return")
    }
    return create_model(kind, __base__=Section, **fields)


def read_json(text: str) -> object:
    """Return the JSON value that `text` is, in a code fence or not; `NO_VALUE` if it is not JSON.

    Strict: NaN, infinity and repeated keys are refused.
    """
    try:
        return json.loads(
            _strip_fence(text), parse_constant=refuse_constant, object_pairs_hook=distinct_fields
        )
    except (ValueError, RecursionError):
        return NO_VALUE


def _strip_fence(text: str) -> str:
    bare = text.strip()
    if bare.startswith(FENCE) and bare.endswith(FENCE):
        return bare.removesuffix(FENCE).partition("\n")[2]
    return bare


def _same_json(left: object, right: object) -> bool:
    """Compare JSON values; unlike `==`, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        first, second = cast("dict[str, object]", left), cast("dict[str, object]", right)
        return first.keys() == second.keys() and all(_same_json(first[k], second[k]) for k in first)
    if isinstance(left, list) and isinstance(right, list):
        one, two = cast("list[object]", left), cast("list[object]", right)
        return len(one) == len(two) and all(map(_same_json, one, two))
    return left == right


def _normalise_space(text: str) -> str:
    return " ".join(text.split())


def _strip_period(text: str) -> str:
    return _normalise_space(text).removesuffix(".")


def _contains(answer: str, argument: str) -> bool:
    return _normalise_space(argument).casefold() in _normalise_space(answer).casefold()


def _json_equals(answer: str, argument: str) -> bool:
    value = read_json(answer)
    return value is not NO_VALUE and _same_json(value, read_json(argument))


def _self_identifies(answer: str, argument: str) -> bool:
    """Whether the answer has the name as whole words ("Al" is not in "I am Alma")."""
    texts = ("".join(c if c.isalnum() else " " for c in t.casefold()) for t in (argument, answer))
    name, words = map(_normalise_space, texts)
    return f" {name} " in f" {words} "


def _quote(words: Iterable[str]) -> str:
    return ", ".join(json.dumps(word, ensure_ascii=False) for word in words)


def _words(answer: str, _: Given) -> str:
    return f"{sum(1 for _ in WORD.finditer(answer))} words"


def _times(answer: str, given: Given) -> str:
    word: str = given.get("keyword") or given["letter"]
    return f"{_quote([word])} {answer.casefold().count(word.casefold())} times"


def _capitals(answer: str, _: Given) -> str:
    return f"capitals in {_quote([w for w in answer.split() if w != w.lower()][:3])}"


def _lowercase(answer: str, _: Given) -> str:
    return f"lowercase letters in {_quote([w for w in answer.split() if w != w.upper()][:3])}"


def _start(answer: str, _: Given) -> str:
    return f"the beginning {_quote([' '.join(answer.split()[:SHOWN_WORDS])])}"


def _end(answer: str, _: Given) -> str:
    return f"the end {_quote([' '.join(answer.split()[-SHOWN_WORDS:])])}"


def _plain(
    decides: Callable[[str, str], bool], asked: str, found: Callable[[str, Given], str] = _nothing
) -> Kind:
    return Kind(decides, asked, found)


CHECKS: Mapping[str, Kind] = {
    "equals": _plain(
        lambda answer, text: _strip_period(answer) == _strip_period(text),
        "the answer {argument!r}",
    ),
    "ends_with": _plain(
        lambda answer, text: _strip_period(answer).endswith(_strip_period(text)),
        "to end with {argument!r}",
        _end,
    ),
    "starts_with": _plain(
        lambda answer, text: _normalise_space(answer).startswith(_normalise_space(text)),
        "to start with {argument!r}",
        _start,
    ),
    "contains": _plain(_contains, "to contain {argument!r}"),
    "excludes": _plain(
        lambda answer, text: not _contains(answer, text),
        "not to contain {argument!r}",
        lambda _, given: _quote([given["argument"]]),
    ),
    "json_equals": _plain(_json_equals, "the JSON {argument}"),
    "json_valid": _plain(lambda answer, _: read_json(answer) is not NO_VALUE, "valid JSON"),
    "max_words": _plain(
        lambda answer, most: len(answer.split()) <= int(most), "at most {argument} words", _words
    ),
    "min_words": _plain(
        lambda answer, least: len(answer.split()) >= int(least), "at least {argument} words", _words
    ),
    "uppercase": _plain(lambda answer, _: answer.isupper(), "capital letters only", _lowercase),
    "lowercase": _plain(lambda answer, _: answer.islower(), "lowercase letters only", _capitals),
    "self_identifies": _plain(_self_identifies, "to say the name {argument!r}"),
}
FAMILIES: Mapping[str, Kind] = {
    "keywords:existence": Kind(
        demands.has_keywords,
        "the words {keywords}",
        lambda answer, given: (
            f"no {_quote(w for w in given['keywords'] if w.casefold() not in answer.casefold())}"
        ),
    ),
    "keywords:frequency": Kind(
        demands.has_keyword_often, "the word {keyword!r} {relation} {frequency} times", _times
    ),
    "keywords:forbidden_words": Kind(
        demands.avoids_words,
        "none of the words {forbidden_words}",
        lambda answer, given: _quote(
            w for w in given["forbidden_words"] if w.casefold() in answer.casefold()
        ),
    ),
    "keywords:letter_frequency": Kind(
        demands.has_letter_often,
        "the letter {letter!r} {let_relation} {let_frequency} times",
        _times,
    ),
    "language:response_language": Kind(
        demands.is_in_language, "an answer in the language {language!r}"
    ),
    "length_constraints:number_sentences": Kind(
        demands.has_sentences,
        "{relation} {num_sentences} sentences",
        lambda answer, _: f"{sum(1 for _ in sentences_of(answer))} sentences",
    ),
    "length_constraints:number_paragraphs": Kind(
        demands.has_paragraphs,
        "{num_paragraphs} paragraphs, separated by ***",
        lambda answer, _: f"{len(DIVIDER.findall(answer)) + 1} paragraphs",
    ),
    "length_constraints:number_words": Kind(
        demands.has_words, "{relation} {num_words} words", _words
    ),
    "length_constraints:nth_paragraph_first_word": Kind(
        demands.has_first_word,
        "{num_paragraphs} paragraphs, number {nth_paragraph} starting with {first_word!r}",
    ),
    "detectable_content:number_placeholders": Kind(
        demands.has_placeholders, "at least {num_placeholders} placeholders in square brackets"
    ),
    "detectable_content:postscript": Kind(
        demands.has_postscript, "a postscript that starts with {postscript_marker}"
    ),
    "detectable_format:number_bullet_lists": Kind(
        demands.has_bullets,
        "exactly {num_bullets} bullet points",
        lambda answer, _: f"{len(BULLET.findall(answer))} bullet points",
    ),
    "detectable_format:constrained_response": Kind(
        demands.is_one_of_the_answers, 'one of "My answer is yes.", "no." and "maybe."'
    ),
    "detectable_format:number_highlighted_sections": Kind(
        demands.has_highlights, "at least {num_highlights} *highlights*"
    ),
    "detectable_format:multiple_sections": Kind(
        demands.has_sections,
        "at least {num_sections} sections that start with {section_spliter!r} and a number",
    ),
    "detectable_format:json_format": Kind(demands.is_json, "JSON only"),
    "detectable_format:title": Kind(demands.has_title, "a title in <<double angular brackets>>"),
    "combination:two_responses": Kind(
        demands.is_two_responses, "two different answers, separated by ******"
    ),
    "combination:repeat_prompt": Kind(
        demands.repeats_prompt, "first to repeat the request word for word", _start
    ),
    "startend:end_checker": Kind(demands.ends_with_phrase, "to end with {end_phrase!r}", _end),
    "startend:quotation": Kind(
        demands.is_quoted,
        "double quotation marks around the whole answer",
        lambda answer, given: f"{_start(answer, given)} and {_end(answer, given)}",
    ),
    "change_case:capital_word_frequency": Kind(
        demands.has_capital_words, "{capital_relation} {capital_frequency} words in capitals"
    ),
    "change_case:english_capital": Kind(
        demands.is_english_in_capitals, "English in capital letters only", _lowercase
    ),
    "change_case:english_lowercase": Kind(
        demands.is_english_in_small_letters, "English in lowercase letters only", _capitals
    ),
    "punctuation:no_comma": Kind(
        demands.has_no_comma, "no commas", lambda answer, _: f"{answer.count(',')} commas"
    ),
}
KINDS = {**CHECKS, **FAMILIES}
ASKED = {name: kind.asked for name, kind in KINDS.items()}
COUNTS = frozenset({"max_words", "min_words"})
TEXTS = frozenset({"equals", "ends_with", "starts_with", "contains", "excludes", "self_identifies"})
JSON_CHECKS = frozenset({"json_valid", "json_equals"})
BY_LANGUAGE = frozenset(
    {
        "language:response_language",
        "change_case:english_capital",
        "change_case:english_lowercase",
    }
)
"""The families that langdetect decides."""
