"""Merges files, environment and options into one validated configuration.

Later sources win: the schema's defaults, the mode's, a file and what it extends, `LPFLOOP_*`, the
options of the command. Errors name the source and the field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from .describe import ConfigField, fields, resolved, semantic
from .explain import explain
from .mode import FIELD, mode_layer
from .own_function import names_function
from .read import (
    Layer,
    Values,
    is_file_name,
    named_variant,
    parse_yaml,
    preset_file,
    presets,
    read_chain,
)
from .recipes import Recipe
from .schema import ConfigError, RunConfig
from .section import API_KEY
from .variants import DEFAULT_VARIANT, recipe_class, settings_of, variants

__all__ = [
    "UNSAID",
    "ConfigField",
    "Override",
    "fields",
    "load_config",
    "parse_set",
    "presets",
    "resolved",
    "semantic",
    "stored_config",
    "variants",
]

UNSAID = {"guard": False}
"""What a run did that began before there was the field, where the default differs."""
PREFIX = "LPFLOOP_"
TINY = "tiny"
TOYS = f"preset {TINY}/"
"""The source of what the tiny world's presets say."""
RESERVED = frozenset({API_KEY, "LPFLOOP_LAKE", "LPFLOOP_SHARED_DATA"})
"""Variables with the prefix that are not fields: API key, lake, tests' data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value set from outside the files; messages call it by its `source` (`--seed`)."""

    source: str
    path: str
    value: object


def parse_set(text: str) -> Override:
    """Read one `--set key=value`; the value is YAML, so numbers, lists and null are possible.

    The key may be the end of a path, such as `ppo.kl_coef`, if it is unique.

    Raises:
        ConfigError: if there is no `=`, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise ConfigError(f"--set {text}: write it as --set section.key=value")
    try:
        return Override(source="--set", path=_whole(path), value=parse_yaml(value))
    except ConfigError as error:
        raise ConfigError(f"--set {path}: {error}") from error


def _whole(path: str) -> str:
    """Expand the unique end of a field's path, of two or more names; else return `path`."""
    known = [field.path for field in fields()]
    section = f"{path.partition('.')[0]}."
    if "." not in path or any(name.startswith(section) for name in known):
        return path
    ending = [name for name in known if name.endswith(f".{path}")]
    return ending[0] if len(ending) == 1 else path


def _from_environment(env: Mapping[str, str]) -> list[Override]:
    """Read `LPFLOOP_SECTION__KEY=value`; two underscores stand for the dot."""
    found = list[Override]()
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in RESERVED:
            continue
        path = name.removeprefix(PREFIX).lower().replace("__", ".")
        source = f"environment variable {name}"
        try:
            found.append(Override(source=source, path=path, value=parse_yaml(env[name])))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error
    return found


class _Merged:
    """Values merged so far, and for each the source that set it."""

    def __init__(self) -> None:
        self.values: Values = {}
        self.sources: dict[tuple[str, ...], str] = {}
        # A plain mapping, such as critic.task_aspects, is replaced as a whole, never merged.
        self._plain = {tuple(field.path.split(".")): field.default for field in fields()}
        self._sections = {path[:depth] for path in self._plain for depth in range(1, len(path))}

    def add(self, layer: Layer) -> None:
        """Lay a layer over the present values."""
        self._merge(self.values, layer.values, (), layer.source)

    def has(self, path: str) -> bool:
        """Whether a source has set this value."""
        return tuple(path.split(".")) in self.sources

    def put(self, override: Override) -> None:
        """Lay one value over the present ones."""
        path = tuple(override.path.split("."))
        values = self.values
        for depth, name in enumerate(path[:-1], start=1):
            inner = values.setdefault(name, self._empty(path[:depth]))
            if not isinstance(inner, dict):
                above = ".".join(path[:depth])
                raise ConfigError(
                    f"{override.source}: {override.path}: {above} is a value and has no parts"
                )
            values = cast("Values", inner)
        self._merge(values, {path[-1]: override.value}, path[:-1], override.source)

    def forget_toys(self) -> None:
        """Drop the models that the tiny world's presets name, where the prompts are not its own.

        They know no others. Who wants one all the same names it: `--critic tiny`.
        """
        if self._section(("prompts",)).get("source") == TINY:
            return
        models = [path[:-1] for path in self.sources if path[-1] == "model"]
        for part in [part for part in models if self._is_toy(part)]:
            engine = self._section((*part, "engine"))
            for section, names in ((self._section(part), ("model",)), (engine, ("kind", "script"))):
                for name in names:
                    section.pop(name, None)
            del self.sources[*part, "model"]

    def _is_toy(self, part: tuple[str, ...]) -> bool:
        """Whether a preset of the tiny world says who plays a part, and nobody else does."""
        paths = [(*part, "model"), (*part, "engine", "kind"), (*part, "engine", "script")]
        sources = [self.sources[path] for path in paths if path in self.sources]
        named = self._section(part).get("model") == TINY
        return named and all(source.startswith(TOYS) for source in sources)

    def _section(self, path: Sequence[str]) -> Values:
        found = self.values
        for name in path:
            inner = found.get(name)
            found = cast("Values", inner) if isinstance(inner, dict) else {}
        return found

    def _empty(self, path: tuple[str, ...]) -> object:
        """Return the value at `path` before anything is set: an empty section, or the default."""
        if path not in self._plain:
            return {}
        default = self._plain[path]
        return dict(cast("Values", default)) if isinstance(default, dict) else default

    def _merge(self, into: Values, new: Values, prefix: tuple[str, ...], source: str) -> None:
        for name, value in new.items():
            path = (*prefix, name)
            if value is None and path in self._sections:
                continue  # `policy:` with nothing below it says nothing
            if isinstance(value, dict) and path not in self._plain:
                inner = into.get(name)
                into[name] = inner if isinstance(inner, dict) else {}
                self._merge(cast("Values", into[name]), cast("Values", value), path, source)
            else:
                into[name] = dict(cast("Values", value)) if isinstance(value, dict) else value
            self.sources[path] = source


def _chosen_variant(variant: str | None, overrides: Sequence[Override]) -> str | None:
    """Return the variant that command and environment ask for; they must agree."""
    chosen = variant
    for override in overrides:
        if override.path != "recipe.name":
            continue
        if variant is not None and override.value != variant:
            raise ConfigError(f"--variant {variant} and {override.source} recipe.name disagree")
        chosen = str(override.value)
    if chosen is not None:
        recipe_class(chosen)
    return chosen


def _adapted(layer: Layer, variant: str) -> Layer:
    """Drop a file's settings for another recipe that the chosen one does not have."""
    other = named_variant(layer.values)
    if other is None or not (other in variants() or names_function(other)):
        return layer
    foreign = settings_of(other) - settings_of(variant)
    recipe = cast("Values", layer.values["recipe"])
    kept: Values = {name: value for name, value in recipe.items() if name not in foreign}
    return Layer(source=layer.source, values={**layer.values, "recipe": {**kept, "name": variant}})


def _layers(name_or_path: str | None, variant: str | None) -> list[Layer]:
    """Return the layers of the files, adapted to the chosen variant."""
    name = name_or_path or TINY
    if is_file_name(name):
        layers = read_chain(Path(name), variant)
    else:
        layers = read_chain(preset_file(name, variant or DEFAULT_VARIANT), variant)
    if variant is None:
        return layers
    named = Layer(source=f"--variant {variant}", values={"recipe": {"name": variant}})
    return [*(_adapted(layer, variant) for layer in layers), named]


def _named_by(layers: Sequence[Layer]) -> str:
    """Return the recipe that the last of the layers names, which must be there."""
    for layer in reversed(layers):
        if name := named_variant(layer.values):
            try:
                recipe_class(name)
            except ConfigError as error:
                raise ConfigError(f"{layer.source}: recipe.name: {error}") from error
            return name
    return DEFAULT_VARIANT


def _spoken(override: Override) -> Layer:
    return Layer(source=override.source, values={override.path: override.value})


def load_config(
    name_or_path: str | None,
    variant: str | None,
    overrides: Sequence[str | Override],
    env: Mapping[str, str],
) -> RunConfig:
    """Load a preset or a file, lay the environment and the options over it, and validate.

    Args:
        name_or_path: a shipped preset (`tiny`), or a YAML file; default: the tiny world.
        variant: the recipe; default: the one that the file names.
        overrides: `key=value` texts of `--set`, and `Override`s of other options; later ones win.
        env: the environment.

    Raises:
        ConfigError: with one line for each of the first few mistakes.
    """
    outside = _from_environment(env)
    outside += [parse_set(item) if isinstance(item, str) else item for item in overrides]
    layers = _layers(name_or_path, _chosen_variant(variant, outside))
    said = [*layers, *(_spoken(item) for item in outside if item.path == FIELD)]
    merged = _Merged()
    if mode := mode_layer(said, settings_of(_named_by(layers))):
        merged.add(mode)
    for layer in layers:
        merged.add(layer)
    for override in outside:
        merged.put(override)
    merged.forget_toys()
    return _validated(merged, env)


def stored_config(
    values: Mapping[str, object],
    overrides: Sequence[str | Override],
    env: Mapping[str, str],
    *,
    to_run: bool = True,
) -> RunConfig:
    """Rebuild a run's configuration from what `resolved` stored.

    Of the environment it takes the endpoints' key alone: the rest was resolved at the beginning.
    Unless it is `to_run`, the file of a recipe of the user's own is not read.

    Raises:
        ConfigError: as `load_config`.
    """
    stored = {**UNSAID, **values}
    name = named_variant(stored)
    if not to_run and name is not None and names_function(name):
        stored["recipe"] = Recipe(name=name)
    merged = _Merged()
    merged.add(Layer(source="the stored configuration of the run", values=stored))
    for item in overrides:
        merged.put(parse_set(item) if isinstance(item, str) else item)
    return _validated(merged, env)


def _validated(merged: _Merged, env: Mapping[str, str]) -> RunConfig:
    """Fill in defaults of the recipe's name and the endpoints' key, and validate."""
    recipe = merged.values.setdefault("recipe", {"name": DEFAULT_VARIANT})
    if isinstance(recipe, dict):
        cast("Values", recipe).setdefault("name", DEFAULT_VARIANT)
    for field in fields() if env.get(API_KEY) else ():
        if field.secret and not merged.has(field.path):
            merged.put(Override(source=API_KEY, path=field.path, value=env[API_KEY]))
    try:
        return RunConfig.model_validate(merged.values)
    except ValidationError as error:
        settings = _settings(merged.values)
        raise ConfigError(explain(error, merged.sources, settings)) from None


def _settings(values: Values) -> frozenset[str]:
    """Return the names of the settings of the recipe that was asked for, if there is one."""
    try:
        return settings_of(named_variant(values) or DEFAULT_VARIANT)
    except ConfigError:
        return frozenset()
