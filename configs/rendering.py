"""A configuration as people read it: YAML that can be loaded again, and what differs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import yaml
from pydantic import SecretStr
from pydantic_core import to_jsonable_python

from .describe import effect_of, is_secret
from .load import defaults_of
from .schema import RunConfig
from .section import Effect, Section

LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SetField:
    """A field of a configuration with its value as plain data, and its default."""

    path: str
    value: object
    default: object
    effect: Effect
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field with another value in each of two configurations; None where one lacks it."""

    path: str
    first: str | None
    second: str | None
    effect: Effect


def set_fields(config: RunConfig, *, every: bool = False) -> list[SetField]:
    """Return the fields that differ from the defaults of the recipe, or `every` one.

    Secrets are left out.
    """
    defaults = {path: value for path, value, _ in _leaves(defaults_of(config))}
    found = [
        SetField(
            path=path,
            value=value,
            default=defaults.get(path),
            effect=effect,
            is_default=path in defaults and defaults[path] == value,
        )
        for path, value, effect in _leaves(config)
    ]
    chosen = {f.path for f in found if not f.is_default or f.path == "recipe.name"}
    return [f for f in found if every or f.path in chosen]


def differences(first: RunConfig, second: RunConfig) -> list[FieldDifference]:
    """Return the fields in which two configurations differ, those that can change a row first."""
    one, other = ({path: flow(value) for path, value, _ in _leaves(c)} for c in (first, second))
    effects: dict[str, Effect] = {
        path: effect for c in (first, second) for path, _, effect in _leaves(c)
    }
    found = [
        FieldDifference(path=path, first=one.get(path), second=other.get(path), effect=effect)
        for path, effect in effects.items()
        if one.get(path) != other.get(path)
    ]
    return sorted(found, key=lambda d: d.effect != "semantic")


def nested(shown: Iterable[SetField]) -> dict[str, object]:
    """Return fields as the mapping that a file of them holds."""
    whole: dict[str, object] = {}
    for field in shown:
        inner = whole
        *sections, leaf = field.path.split(".")
        for name in sections:
            inner = cast("dict[str, object]", inner.setdefault(name, {}))
        inner[leaf] = field.value
    return whole


def as_yaml(shown: Iterable[SetField], sources: Mapping[str, str]) -> str:
    """Return fields as YAML, each with who set it, where that is known, and its default."""
    lines = list[str]()
    open_sections: list[str] = []
    for field in shown:
        *sections, leaf = field.path.split(".")
        same = 0
        while same < min(len(sections), len(open_sections)) and (
            sections[same] == open_sections[same]
        ):
            same += 1
        for depth in range(same, len(sections)):
            lines.append(f"{'  ' * depth}{sections[depth]}:")
        open_sections = sections
        lines.append(f"{'  ' * len(sections)}{leaf}: {flow(field.value)}{_comment(field, sources)}")
    return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def set_secrets(section: Section, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the secrets that are set."""
    for name in type(section).model_fields:
        value: object = getattr(section, name)
        if isinstance(value, SecretStr):
            yield f"{prefix}{name}"
        elif isinstance(value, Section):
            yield from set_secrets(value, f"{prefix}{name}.")


def _comment(field: SetField, sources: Mapping[str, str]) -> str:
    told = list[str]()
    if source := _source(field.path, sources):
        told.append(source)
    if not field.is_default:
        default = flow(field.default)
        told.append(f"default {default}" if len(default) <= LONGEST else "not the default")
    said = "; ".join(told)
    return f"  # {said}" if said else ""


def _source(path: str, sources: Mapping[str, str]) -> str | None:
    """Return who set a field, or the innermost section around it."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        if found := sources.get(".".join(names[:length])):
            return found
    return None


def _leaves(config: RunConfig) -> list[tuple[str, object, Effect]]:
    """Return each field's path, its value as plain data, and its effect; secrets are left out."""
    return list(_walk(config, ""))


def _walk(section: Section, prefix: str) -> Iterator[tuple[str, object, Effect]]:
    for name, info in type(section).model_fields.items():
        own: object = getattr(section, name)
        if isinstance(own, Section):
            yield from _walk(own, f"{prefix}{name}.")
        elif not is_secret(info):
            yield f"{prefix}{name}", cast("object", to_jsonable_python(own)), effect_of(info)
