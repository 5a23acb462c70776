"""Verifiable demands on an answer (`stores.records.Check`), each decided by a small function.

Texts are compared with white space normalised, and `equals` and `ends_with` ignore a final period.
`contains`, `excludes` and `self_identifies` ignore case; the other kinds do not. IFEval's families
are further kinds, named as IFEval names them (`ifeval`).
"""

import json
from collections.abc import Callable, Iterable
from typing import NoReturn, cast

from ..configs.mistakes import ConfigError
from ..stores.records import Check
from .ifeval.families import BY_LANGUAGE, FAMILIES, canonical_argument, follows
from .ifeval.languages import require_langdetect
from .reply_schema import distinct_fields

NO_VALUE = object()
FENCE = "```"
LONGEST = 200_000


def known_check(kind: str) -> bool:
    """Return whether there is a check of this kind."""
    return kind in CHECKS or kind in FAMILIES


def valid_check(kind: str, argument: str) -> Check:
    """Return a check that can be decided; the same parameters make the same check.

    Raises:
        ConfigError: if the kind is unknown or the argument does not fit it.
    """
    if not known_check(kind):
        raise ConfigError(
            f"unknown check {kind!r}; the kinds are {', '.join(CHECKS)}, and IFEval's families, "
            "such as punctuation:no_comma (all are in docs/checks.md)"
        )
    if kind in FAMILIES:
        return Check(kind=kind, argument=canonical_argument(kind, argument))
    if kind in COUNTS and not (argument.isascii() and argument.isdigit()):
        raise ConfigError(f"check {kind!r} needs a number of words, not {argument!r}")
    if kind in TEXTS and not argument.strip():
        raise ConfigError(f"check {kind!r} needs a text")
    if kind == "json_equals" and read_json(argument) is NO_VALUE:
        raise ConfigError(f"check 'json_equals' needs JSON, not {argument!r}")
    return Check(kind=kind, argument=argument)


def fulfils(answer: str, check: Check) -> bool:
    """Return whether `answer` meets `check`."""
    if check.kind in FAMILIES:
        return follows(answer, check.kind, check.argument)
    return CHECKS[check.kind](answer, check.argument)


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


def require_deciders(checks: Iterable[Check]) -> None:
    """Refuse checks that need a library that is not installed.

    Raises:
        ConfigError: with the remedy.
    """
    if any(check.kind in BY_LANGUAGE for check in checks):
        require_langdetect()


def read_json(text: str) -> object:
    """Return the JSON value that `text` is, in a code fence or not; `NO_VALUE` if it is not JSON.

    Strict: NaN, infinity and repeated keys are refused.
    """
    try:
        return json.loads(
            _strip_fence(text), parse_constant=_refuse_constant, object_pairs_hook=distinct_fields
        )
    except (ValueError, RecursionError):
        return NO_VALUE


def _strip_fence(text: str) -> str:
    bare = text.strip()
    if bare.startswith(FENCE) and bare.endswith(FENCE):
        return bare.removesuffix(FENCE).partition("\n")[2]
    return bare


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


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
    return f" {_words(argument)} " in f" {_words(answer)} "


def _words(text: str) -> str:
    return _normalise_space("".join(c if c.isalnum() else " " for c in text.casefold()))


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "equals": lambda answer, text: _strip_period(answer) == _strip_period(text),
    "ends_with": lambda answer, text: _strip_period(answer).endswith(_strip_period(text)),
    "starts_with": lambda answer, text: _normalise_space(answer).startswith(_normalise_space(text)),
    "contains": _contains,
    "excludes": lambda answer, text: not _contains(answer, text),
    "json_equals": _json_equals,
    "json_valid": lambda answer, _: read_json(answer) is not NO_VALUE,
    "max_words": lambda answer, most: len(answer.split()) <= int(most),
    "min_words": lambda answer, least: len(answer.split()) >= int(least),
    "uppercase": lambda answer, _: answer.isupper(),
    "lowercase": lambda answer, _: answer.islower(),
    "self_identifies": _self_identifies,
}
COUNTS = frozenset({"max_words", "min_words"})
TEXTS = frozenset({"equals", "ends_with", "starts_with", "contains", "excludes", "self_identifies"})
JSON_CHECKS = frozenset({"json_valid", "json_equals"})
