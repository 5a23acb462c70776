"""A configuration for readers: YAML, and differences."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

import yaml
from pydantic_core import to_jsonable_python

from .describe import effect_of, is_secret
from .load import defaults_of
from .schema import RunConfig
from .section import Effect, Section, leaves

LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SetField:
    """A field of a configuration with its value as plain data, and its default."""

    path: str
    value: object
    default: object
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field with different values in two configurations; None for one that lacks it."""

    path: str
    first: str | None
    second: str | None
    effect: Effect


def set_fields(config: RunConfig, *, every: bool = False) -> list[SetField]:
    """Return the fields that differ from the defaults of the recipe, or `every` one.

    Secrets are left out.
    """
    values, defaults = _values(config), _values(defaults_of(config))
    return [
        SetField(path=path, value=value, default=defaults.get(path), is_default=same)
        for path, value in values.items()
        for same in (path in defaults and defaults[path] == value,)
        if every or not same or path == "recipe.name"
    ]


def differences(first: RunConfig, second: RunConfig) -> list[FieldDifference]:
    """Return the fields in which two configurations differ, those that can change a row first."""
    both = (first, second)
    one, other = ({path: flow(value) for path, value in _values(c).items()} for c in both)
    effects: dict[str, Effect] = {
        path: effect_of(info) for c in both for path, _, info in leaves(c)
    }
    found = [
        FieldDifference(path=path, first=one.get(path), second=other.get(path), effect=effect)
        for path, effect in effects.items()
        if one.get(path) != other.get(path)
    ]
    return sorted(found, key=lambda d: d.effect != "semantic")


def nest_fields(shown: Iterable[SetField]) -> dict[str, object]:
    """Return fields as the nested mapping of a configuration file."""
    whole: dict[str, object] = {}
    for field in shown:
        inner = whole
        *sections, leaf = field.path.split(".")
        for name in sections:
            inner = cast("dict[str, object]", inner.setdefault(name, {}))
        inner[leaf] = field.value
    return whole


def as_yaml(shown: Iterable[SetField], sources: Mapping[str, str]) -> str:
    """Return fields as YAML, each with its default and, if known, its source."""
    lines, above = list[str](), list[str]()
    for field in shown:
        *sections, leaf = field.path.split(".")
        same = takewhile(lambda both: both[0] == both[1], zip(sections, above, strict=False))
        for depth in range(len(list(same)), len(sections)):
            lines.append(f"{'  ' * depth}{sections[depth]}:")
        above = sections
        line = f"{leaf}: {flow(field.value)}{_comment(field, sources)}"
        lines.append(textwrap.indent(line, "  " * len(sections)))
    return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def set_secrets(section: Section) -> Iterator[str]:
    """Yield the paths of the secrets that are set."""
    return (path for path, value, info in leaves(section) if is_secret(info) and value is not None)


def _comment(field: SetField, sources: Mapping[str, str]) -> str:
    labels = [sources[field.path]] if field.path in sources else []
    if not field.is_default:
        default = flow(field.default)
        labels.append(f"default {default}" if len(default) <= LONGEST else "not the default")
    return f"  # {'; '.join(labels)}" if labels else ""


def _values(config: RunConfig) -> dict[str, object]:
    """Return each field's value as plain data by its path; secrets are left out."""
    return {
        path: cast("object", to_jsonable_python(value))
        for path, value, info in leaves(config)
        if not is_secret(info)
    }
