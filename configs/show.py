"""A configuration for readers: YAML, differences, JSON Schema, the first file of a run."""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import yaml
from pydantic import SecretStr, TypeAdapter
from pydantic_core import to_jsonable_python

from .describe import ConfigField, effect_of, every_field, is_secret
from .engines import ModelsByName
from .load import defaults_of
from .read import EXTENDS, presets
from .schema import RunConfig
from .section import Effect, Section
from .variants import variants

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
    """A field with different values in two configurations; None for one that lacks it."""

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
    """Return the source of a field, or of the innermost section around it."""
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


DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{model}"


def json_schema() -> dict[str, Any]:
    """Return the schema of a configuration file, with the settings of every shipped recipe."""
    schema: dict[str, Any] = RunConfig.model_json_schema(ref_template=REFERENCE)
    kinds = variants()
    for name, kind in kinds.items():
        own = TypeAdapter(kind).json_schema(ref_template=REFERENCE)
        own["properties"]["name"]["const"] = name
        schema["$defs"] |= own.pop("$defs", {})
        schema["$defs"][kind.__name__] = own
    del schema["$defs"]["Recipe"]
    function = {
        "type": "object",
        "description": "a function of your own, as ./FILE.py:NAME",
        "properties": {"name": {"type": "string", "pattern": ":"}},
        "required": ["name"],
    }
    shipped = [{"$ref": REFERENCE.format(model=kind.__name__)} for kind in kinds.values()]
    schema["properties"]["recipe"] = {"anyOf": [*shipped, function]}
    models = ModelsByName.model_json_schema(ref_template=REFERENCE)
    schema["$defs"] |= models["$defs"]
    schema["properties"] |= models["properties"]
    schema["properties"][EXTENDS] = {
        "type": "string",
        "description": f"the preset world ({', '.join(presets())}) or file that this one builds on",
    }
    return {"$schema": DIALECT, **schema}


WIDTH = 96
SHOWN = (
    *("iterations", "seed", "recipe.name", "recipe.n", "recipe.m", "recipe.top_k"),
    *("prompts.source", "policy.model", "policy.sampling.temperature"),
    *("policy.sampling.max_tokens", "critic.model"),
)
"""The fields that a beginner needs first."""
SUGGESTED: Mapping[str, object] = {
    "prompts.held_out": "FILE",
    "reward.model": "FOLDER",
    "training.lora.r": 16,
    "budget.hours": 8,
    "tracking.to": ["tensorboard"],
}
"""Commented settings of a new file, each with an example value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A line of the file: its field's path, its value as YAML, and if it is in force."""

    path: str
    value: str
    set_here: bool


def starter(config: RunConfig, preset: str, file: str, chosen: Sequence[str] = ()) -> str:
    """Return the YAML of a file that makes `config` of a preset; `chosen` fields are shown, too."""
    values = {field.path: field.value for field in set_fields(config, every=True)}
    shown = [path for path in dict.fromkeys((*SHOWN, *chosen)) if path in values]
    leaves = [_Leaf(path=path, value=flow(values[path]), set_here=True) for path in shown]
    leaves += [
        _Leaf(path=path, value=flow(value), set_here=False)
        for path, value in SUGGESTED.items()
        if path not in shown
    ]
    told = _told(config.recipe.name)
    lines = [*_head(preset, file), f"{EXTENDS}: {preset}", *_section("", leaves, told, config)]
    return "\n".join(lines) + "\n"


def _head(preset: str, file: str) -> Iterator[str]:
    written = shlex.quote(file)
    yield f"# A run of lpfloop: `lpfloop run --config {written}`."
    yield f"# All other settings are those of the preset `{preset}`; to see them:"
    yield f"#   lpfloop config show --config {written} --defaults"
    yield "# Lines behind a # are suggestions. Every field that can be set, with its meaning:"
    yield "#   lpfloop config schema"


def _told(recipe: str) -> Mapping[str, ConfigField]:
    """Return the fields by path, with a recipe's own versions of its settings."""
    return {f.path: f for f in every_field() if f.recipe in ("", recipe)}


def _section(
    prefix: str, leaves: Sequence[_Leaf], told: Mapping[str, ConfigField], of: Section
) -> Iterator[str]:
    """Yield the lines of a section, with nested sections after its own fields."""
    names = dict.fromkeys(leaf.path.removeprefix(prefix).partition(".")[0] for leaf in leaves)
    for name in sorted(names, key=lambda n: any(_within(f"{prefix}{n}.", leaves))):
        path = f"{prefix}{name}"
        inner = list(_within(f"{path}.", leaves))
        if not inner:
            leaf = next(leaf for leaf in leaves if leaf.path == path)
            yield from _wrapped(told[path].description)
            yield f"{'' if leaf.set_here else '# '}{name}: {leaf.value}"
            continue
        section = getattr(of, name)
        idle = not any(leaf.set_here for leaf in inner)
        if idle:  # The whole section is commented out already, so its lines are not again.
            inner = [replace(leaf, set_here=True) for leaf in inner]
        lines = [f"{name}:", *(f"  {line}" for line in _section(f"{path}.", inner, told, section))]
        if not prefix:
            yield ""
            yield from _wrapped((type(section).__doc__ or "").partition("\n")[0])
        yield from (f"# {line}" if idle else line for line in lines)


def _within(prefix: str, leaves: Sequence[_Leaf]) -> Iterator[_Leaf]:
    return (leaf for leaf in leaves if leaf.path.startswith(prefix))


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")
