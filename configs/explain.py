"""Error messages about a configuration: source, field, mistake, remedy."""

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from .describe import fields, settable
from .engines import ANY_NAME, MODELS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHOWN = 5
"""The most mistakes that are listed; the others are counted."""
SHOWN_VALUE = 60
USUAL_DEPTH = 3
"""A deeper field is less likely meant than another of the same name."""
SUGGESTED = 3

Path = tuple[str, ...]


def explain(
    error: ValidationError, sources: Mapping[Path, str], settings: frozenset[str] = frozenset()
) -> str:
    """Return one line for each of the first few mistakes; `settings` are the recipe's."""
    lines = list(dict.fromkeys(_line(item, sources, settings) for item in error.errors()))
    rest = len(lines) - SHOWN
    return "\n".join([*lines[:SHOWN], *([f"... and {rest} more"] if rest > 0 else [])])


def _line(item: "ErrorDetails", sources: Mapping[Path, str], settings: frozenset[str]) -> str:
    path = tuple(str(part) for part in item["loc"])
    source = _source(path, sources)
    prefix = f"{source}: " if source else ""
    dotted = ".".join(path)
    match item["type"]:
        case "extra_forbidden":
            return f"{prefix}{_unknown_key(path, settings)}"
        case "recipe":
            return f"{prefix}{item['msg']}"
        case _:
            return f"{prefix}{dotted}: {_fault(item, dotted)}"


def _source(path: Path, sources: Mapping[Path, str]) -> str | None:
    """Return the source that set the value, or the innermost section around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in sources:
            return sources[path[:length]]
    return None


def _fault(item: "ErrorDetails", dotted: str) -> str:
    """Return pydantic's finding as the rest of a sentence, with the value unless it is secret."""
    text = item["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    value = item["input"]
    secrets = {field.path.rpartition(".")[2] for field in fields() if field.secret}
    secret = not secrets.isdisjoint(dotted.split("."))
    if secret or isinstance(value, (dict, list, tuple)) or "credentials" in text:
        return text
    shown = repr(value)
    if len(shown) > SHOWN_VALUE:
        shown = f"{shown[:SHOWN_VALUE]}..."
    return f"{text}, not {shown}"


def _unknown_key(path: Path, settings: frozenset[str]) -> str:
    """Return the message for an unknown key, with the key that was probably meant."""
    known = [tuple(field.path.split(".")) for field in settable()]
    if path[:1] == (MODELS,):
        every = (tuple(field.path.split(".")) for field in fields())
        known += [(MODELS, *path[1:2], *of[2:]) for of in every if of[:2] == (MODELS, ANY_NAME)]
    # A nested section of the recipe is known by its fields.
    parts = {path[:2] for path in known if path[2:]}
    known += [("recipe", name) for name in settings if ("recipe", name) not in parts]
    *section, leaf = path
    depth = len(section)
    siblings = sorted({other[depth] for other in known if list(other[:depth]) == section})
    if leaf in siblings:
        hint = "another recipe has it, this one does not"
    elif likely := _likely_paths(leaf, section, siblings, known):
        more = f" ({len(likely)} have that name)" if len(likely) > SUGGESTED else ""
        hint = f"did you mean {' or '.join(repr(name) for name in likely[:SUGGESTED])}?{more}"
    else:
        hint = f"the keys here are {', '.join(siblings)}"
    if section == ["recipe"]:
        hint = f"{hint}; this recipe has {', '.join(sorted(settings - {'name'}))}"
    return f"unknown key {'.'.join(path)!r}; {hint}"


def _likely_paths(
    leaf: str, section: Sequence[str], siblings: Sequence[str], known: Sequence[Path]
) -> list[str]:
    """Return the paths that were probably meant, the likeliest first.

    A field of exactly this name in another section is likelier than one in the same section with a
    similar name.
    """
    names = {other[-1] for other in known}
    if leaf not in names and (near := difflib.get_close_matches(leaf, siblings, n=1)):
        return [".".join([*section, near[0]])]
    called = difflib.get_close_matches(leaf, sorted(names), n=1)
    depth = len(section)
    found = {other for other in known if other[-1:] == tuple(called)}
    order = sorted(
        found,
        key=lambda o: (list(o[:depth]) != section, len(o) > USUAL_DEPTH, known.index(o)),
    )
    return [".".join(other) for other in order]
