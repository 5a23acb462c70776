"""Merges files, environment and options into one validated configuration.

Later sources win: the schema's defaults, a file and the files it extends, `LPFLOOP_*`, the options
of the command. Errors name the source and the field.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from .describe import ConfigField, fields, resolve_config, semantic, settable
from .engines import MODELS, TINY, ModelsByName
from .explain import explain
from .merged_layers import MergedLayers, Override
from .own_function import names_function
from .read import (
    Layer,
    Values,
    extend_layers,
    is_file_name,
    named_recipe,
    parse_yaml,
    preset_file,
    presets,
    read_chain,
)
from .recipe_names import DEFAULT_RECIPE, recipe_class, recipe_classes, settings_of
from .recipes import Recipe
from .schema import ConfigError, RunConfig
from .secrecy import API_KEY

__all__ = [
    "ConfigField",
    "Override",
    "defaults_of",
    "fields",
    "from_environment",
    "load_config",
    "load_with_sources",
    "overrides_of",
    "parse_set",
    "presets",
    "recipe_classes",
    "resolve_config",
    "semantic",
    "settable",
    "stored_config",
]

PREFIX = "LPFLOOP_"
MAPPING = "the configuration"
"""The source, in messages, of a configuration that is given as a mapping, not as a file."""
ConfigSource = str | Mapping[str, object]
RESERVED = frozenset({API_KEY, "LPFLOOP_LAKE", "LPFLOOP_SHARED_DATA", "LPFLOOP_STATE"})
"""Variables with the prefix that are not fields: keys, lake, a machine's folders, tests' data."""


def parse_set(text: str) -> Override:
    """Read one `--set key=value`; the value is YAML, so numbers, lists and null are possible.

    The key may be the end of a path, such as `ppo.kl_coef`, if it is unique.

    Raises:
        ConfigError: if `=` is missing, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise ConfigError(f"--set {text}: write it as --set section.key=value")
    try:
        return Override(source="--set", path=_whole(path), value=parse_yaml(value))
    except ConfigError as error:
        raise ConfigError(f"--set {path}: {error}") from error


def overrides_given(settings: Sequence[str | Override]) -> list[Override]:
    """Return the settings of `--set` as overrides."""
    return [parse_set(item) if isinstance(item, str) else item for item in settings]


def overrides_of(settings: Mapping[str, object]) -> list[Override]:
    """Return settings by dotted path as overrides; a path may be cut as with `parse_set`."""
    plain = _plain(settings)
    return [Override(source="set", path=_whole(path), value=plain[path]) for path in plain]


def _whole(path: str) -> str:
    """Expand the unique end of a field's path, of two or more names; else return `path`."""
    known = [field.path for field in settable()]
    section = f"{path.partition('.')[0]}."
    if "." not in path or any(name.startswith(section) for name in known):
        return path
    ending = [name for name in known if name.endswith(f".{path}")]
    return ending[0] if len(ending) == 1 else path


def from_environment(env: Mapping[str, str]) -> list[Override]:
    """Return the settings of variables `LPFLOOP_SECTION__KEY`; two underscores stand for the dot.

    Raises:
        ConfigError: if a value is not YAML.
    """
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


def _chosen_recipe(recipe: str | None, overrides: Sequence[Override]) -> str | None:
    """Return the recipe of the command and the environment; they must agree."""
    chosen = recipe
    for override in overrides:
        if override.path != "recipe.name":
            continue
        if recipe is not None and override.value != recipe:
            raise ConfigError(f"--recipe {recipe} and {override.source} recipe.name disagree")
        chosen = str(override.value)
    if chosen is not None:
        recipe_class(chosen)
    return chosen


def _adapt_layer(layer: Layer, recipe: str) -> Layer:
    """Drop a file's settings for another recipe that the chosen one does not have."""
    other = named_recipe(layer.values)
    if other is None or not (other in recipe_classes() or names_function(other)):
        return layer
    foreign = settings_of(other) - settings_of(recipe)
    settings = cast("Values", layer.values["recipe"])
    kept: Values = {name: value for name, value in settings.items() if name not in foreign}
    return Layer(source=layer.source, values={**layer.values, "recipe": {**kept, "name": recipe}})


def _layers(source: ConfigSource | None, recipe: str | None) -> list[Layer]:
    """Return the layers of the files, adapted to the chosen recipe."""
    name = source or TINY
    if isinstance(name, Mapping):
        layer = Layer(source=MAPPING, values=_plain(name))
        layers = extend_layers(layer, Path(MAPPING), recipe)
    elif is_file_name(name):
        layers = read_chain(Path(name), recipe)
    else:
        layers = read_chain(preset_file(name, recipe or DEFAULT_RECIPE), recipe)
    if recipe is None:
        return layers
    named = Layer(source=f"--recipe {recipe}", values={"recipe": {"name": recipe}})
    return [*(_adapt_layer(layer, recipe) for layer in layers), named]


def _plain(values: Mapping[str, object]) -> Values:
    """Return values in the form of a file: paths as texts, sequences as lists."""
    return json.loads(json.dumps(dict(values), default=str))


def load_config(
    source: ConfigSource | None,
    recipe: str | None,
    overrides: Sequence[str | Override],
    env: Mapping[str, str],
) -> RunConfig:
    """Load a preset or a file, lay the environment and the options over it, and validate.

    Args:
        source: a shipped preset (`tiny`), a YAML file, or the content of such a file; default: the
            tiny world.
        recipe: the recipe; default: the one that the file names.
        overrides: `key=value` texts of `--set`, and `Override`s of other options; later ones win.
        env: the environment.

    Raises:
        ConfigError: with one line for each of the first few mistakes.
    """
    return load_with_sources(source, recipe, overrides, env)[0]


def load_with_sources(
    source: ConfigSource | None,
    recipe: str | None,
    overrides: Sequence[str | Override],
    env: Mapping[str, str],
) -> tuple[RunConfig, Mapping[str, str]]:
    """Load a configuration as `load_config`; return with it the source of each value, by path.

    Raises:
        ConfigError: as `load_config`.
    """
    outside = from_environment(env)
    outside += overrides_given(overrides)
    layers = _layers(source, _chosen_recipe(recipe, outside))
    merged = MergedLayers(layers, outside)
    try:
        ModelsByName.model_validate({MODELS: merged.values.get(MODELS, {})})
    except ValidationError as error:
        raise ConfigError(explain(error, merged.sources)) from None
    merged.give_models()
    config = _validate(merged, env)
    return config, {".".join(path): source for path, source in merged.sources.items()}


def defaults_of(config: RunConfig) -> RunConfig:
    """Return the configuration that sets only the recipe of `config`."""
    return RunConfig(recipe=type(config.recipe)(name=config.recipe.name))


def stored_config(
    values: Mapping[str, object],
    overrides: Sequence[str | Override],
    env: Mapping[str, str],
    *,
    to_run: bool = True,
) -> RunConfig:
    """Rebuild a run's configuration from the output of `resolve_config`.

    Of the environment it takes only the endpoints' key: the rest was resolved at the beginning.
    Unless it is `to_run`, the file of a user's recipe is not read.

    Raises:
        ConfigError: as `load_config`.
    """
    stored = dict(values)
    name = named_recipe(stored)
    if not to_run and name is not None and names_function(name):
        stored["recipe"] = Recipe(name=name)
    layer = Layer(source="the stored configuration of the run", values=stored)
    merged = MergedLayers([layer], overrides_given(overrides))
    return _validate(merged, env)


def _validate(merged: MergedLayers, env: Mapping[str, str]) -> RunConfig:
    """Fill in defaults of the recipe's name and the endpoints' key, and validate."""
    recipe = merged.values.setdefault("recipe", {"name": DEFAULT_RECIPE})
    if isinstance(recipe, dict):
        cast("Values", recipe).setdefault("name", DEFAULT_RECIPE)
    for field in settable() if env.get(API_KEY) else ():
        path = tuple(field.path.split("."))
        if field.secret and path not in merged.sources:
            merged.put(path, env[API_KEY], API_KEY)
    try:
        return RunConfig.model_validate(merged.values)
    except ValidationError as error:
        settings = _settings(merged.values)
        raise ConfigError(explain(error, merged.sources, settings)) from None


def _settings(values: Values) -> frozenset[str]:
    """Return the names of the settings of the named or default recipe; empty if it is invalid."""
    try:
        return settings_of(named_recipe(values) or DEFAULT_RECIPE)
    except ConfigError:
        return frozenset()
