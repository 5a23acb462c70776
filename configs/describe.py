"""The schema as a list of fields, a configuration as plain data, and messages about mistakes.

An error names the source, the field, the mistake and the remedy.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .engines import ANY_NAME, MODELS, ModelConfig
from .recipe_names import recipe_classes
from .recipes import Recipe
from .schema import RunConfig
from .section import EFFECT, Effect, Section

WORDS: Mapping[object, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    type(None): "null",
    SecretStr: "secret",
}
ENGINE = ".engine."
BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """One settable value: its dotted path, its meaning, and whether it can change a row.

    `kind` is its type in words, `range` its bounds or alternatives; `recipe` names the recipe that
    has this setting.
    """

    path: str
    effect: Effect
    secret: bool
    default: object
    description: str
    kind: str
    range: str
    recipe: str = ""


def _alternatives(annotation: object) -> list[object]:
    """Return the members of a union, or the annotation alone."""
    if get_origin(annotation) in (Union, UnionType):
        return list(get_args(annotation))
    return [annotation]


def sections_of(info: FieldInfo) -> list[type[Section]]:
    """Return the sections that a field may hold; empty for a plain value."""
    kinds = list[object](recipe_classes().values())
    if info.annotation is not Recipe:
        kinds = _alternatives(info.annotation)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]


def is_secret(info: FieldInfo) -> bool:
    """Whether a field holds a secret, which is neither stored nor shown."""
    return SecretStr in _alternatives(info.annotation)


def effect_of(info: FieldInfo) -> Effect:
    """Return the effect that a field declares.

    Raises:
        TypeError: if the field declares no effect.
    """
    extra = info.json_schema_extra
    if not isinstance(extra, dict) or EFFECT not in extra:
        raise TypeError(f"the field {info.description!r} declares neither semantic nor cosmetic")
    return cast("Effect", extra[EFFECT])


def _in_words(kind: object) -> str:
    """Return the name of a type for readers of YAML."""
    if get_origin(kind) is Annotated:
        return _in_words(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"list of {_in_words(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"mapping to {_in_words(get_args(kind)[1])}"
    return WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _range(info: FieldInfo) -> str:
    """Return the bounds of a value."""
    found = [
        f"{sign} {bound}"
        for one in info.metadata
        for name, sign in BOUNDS.items()
        if isinstance(bound := getattr(one, name, None), int | float)
    ]
    return ", ".join(found)


def _walk(
    section: type[Section], prefix: str, recipe: str = "", usual: Section | None = None
) -> Iterator[ConfigField]:
    """Yield the fields of a section; `usual` is its default value."""
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        default = getattr(usual, name, cast("object", info.get_default(call_default_factory=True)))  # pyright: ignore[reportUnknownMemberType, reportCallIssue]
        nested = sections_of(info)
        for kind in nested:
            own = str(kind.model_fields["name"].default) if issubclass(kind, Recipe) else recipe
            yield from _walk(
                kind, f"{path}.", own, cast("Section", default) if type(default) is kind else None
            )
        if not nested:
            yield ConfigField(
                path=path,
                effect=effect_of(info),
                secret=is_secret(info),
                default=default,
                description=info.description or "",
                kind=" or ".join(map(_in_words, _alternatives(info.annotation))),
                range=_range(info),
                recipe=recipe,
            )


@cache
def every_field() -> Sequence[ConfigField]:
    """Return every field, with one for each recipe that has a setting of the name.

    The engine of a model is listed once, as `models.NAME.engine`, not for each role.
    """
    own = [field for field in _walk(RunConfig, "") if ENGINE not in field.path]
    return (*_walk(ModelConfig, f"{MODELS}.{ANY_NAME}."), *own)


@cache
def fields() -> Sequence[ConfigField]:
    """Return every field of the configuration, with the fields of all recipes."""
    return _by_path(every_field())


@cache
def settable() -> Sequence[ConfigField]:
    """Return every field of a loaded configuration, each role with the fields of its engine."""
    return _by_path(_walk(RunConfig, ""))


def _by_path(found: Iterable[ConfigField]) -> Sequence[ConfigField]:
    """Return a field for each path. Recipes share names of settings; the first one's counts."""
    by_path = dict[str, ConfigField]()
    for field in found:
        by_path.setdefault(field.path, field)
    return tuple(by_path.values())


@cache
def roles() -> tuple[str, ...]:
    """Return the paths of the sections that have a model with an engine, such as `policy`."""
    paths, kind = (field.path for field in settable()), f"{ENGINE}kind"
    return tuple(path.removesuffix(kind) for path in paths if path.endswith(kind))


def resolve_config(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as plain JSON data, secrets left out."""
    return _dump(config, lambda info: not is_secret(info))


def semantic(section: Section) -> dict[str, Any]:
    """Return the part of a section that can change a row; unit keys and fingerprints hash it."""
    return _dump(section, lambda info: bool(sections_of(info)) or effect_of(info) == "semantic")


def _dump(section: Section, kept: Callable[[FieldInfo], bool]) -> dict[str, Any]:
    values = section.model_dump(mode="json")
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if not kept(info):
            del values[name]
        elif isinstance(value, Section):
            values[name] = _dump(value, kept)
    return values


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


def _line(item: ErrorDetails, sources: Mapping[Path, str], settings: frozenset[str]) -> str:
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


def _fault(item: ErrorDetails, dotted: str) -> str:
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
