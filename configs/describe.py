"""The schema as a flat list of fields, and a configuration as plain data."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

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
