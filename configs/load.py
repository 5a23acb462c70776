"""Merges files, environment and options into one validated configuration.

Later sources win: the schema's defaults, a file and the files it extends, `LPFLOOP_*`, the options
of the command. Errors name the source and the field; the source of each value is kept.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from .describe import ConfigField, explain, fields, resolve_config, roles, semantic, settable
from .engines import ANY_NAME, MODELS, TINY, ModelsByName
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

Keys = tuple[str, ...]
"""A path in the configuration, name by name."""
PREFIX = "LPFLOOP_"
MAPPING = "the configuration"
"""The source, in messages, of a configuration that is given as a mapping, not as a file."""
ConfigSource = str | Mapping[str, object]
RESERVED = frozenset({API_KEY, "LPFLOOP_LAKE", "LPFLOOP_SHARED_DATA", "LPFLOOP_STATE"})
"""Variables with the prefix that are not fields: keys, lake, a machine's folders, tests' data."""


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
    plain = _as_in_a_file(settings)
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
        layer = Layer(source=MAPPING, values=_as_in_a_file(name))
        layers = extend_layers(layer, Path(MAPPING), recipe)
    elif is_file_name(name):
        layers = read_chain(Path(name), recipe)
    else:
        layers = read_chain(preset_file(name, recipe or DEFAULT_RECIPE), recipe)
    if recipe is None:
        return layers
    named = Layer(source=f"--recipe {recipe}", values={"recipe": {"name": recipe}})
    return [*(_adapt_layer(layer, recipe) for layer in layers), named]


def _as_in_a_file(values: Mapping[str, object]) -> Values:
    """Return values in the form of a file: paths as texts, sequences as lists."""
    return json.loads(json.dumps(dict(values), default=str))


class MergedLayers:
    """Values laid over each other, later ones over earlier ones, and the source of each.

    A setting of a role's engine is one of the model in `models` that the role names in the end. So
    it applies to every role that names the model.
    """

    def __init__(self, layers: Sequence[Layer], overrides: Sequence[Override]) -> None:
        self.values: Values = {}
        self.sources: dict[Keys, str] = {}
        given = [(path, v, layer.source) for layer in layers for path, v in _leaves(layer.values)]
        for item in overrides:
            *above, last = item.path.split(".")
            found = _leaves({last: item.value}, tuple(above))
            given += [(path, value, item.source) for path, value in found]
        self.named = _named(given)
        for path, value, source in given:
            self.put(self._of_model(path), value, source)

    def put(self, path: Keys, value: object, source: str) -> None:
        """Lay one value over the present ones."""
        if value == {} and _known(path) in _sections():
            self._section(path, source)
        else:
            values = self._section(path[:-1], source)
            values[path[-1]] = dict(cast("Values", value)) if isinstance(value, dict) else value
        # The last source of a section is to blame for its errors.
        self.sources |= {path[:depth]: source for depth in range(1, len(path) + 1)}

    def give_models(self) -> None:
        """Copy location and engine of each model into the roles that name it."""
        models = cast("Mapping[str, Values]", self.values.pop(MODELS, {}))
        for role, name in self.named.items():
            section = self._section(role, "")
            section["model"] = models[name].get("location") or name
            section["engine"] = deepcopy(models[name].get("engine", {}))
            for path, source in [*self.sources.items()]:
                if path[:3] == (MODELS, name, "engine"):
                    self.sources[*role, *path[2:]] = source

    def _of_model(self, path: Keys) -> Keys:
        """Return the path of a setting of a role's engine as one of the model that it names."""
        for role, name in self.named.items():
            if path[: len(role) + 1] == (*role, "engine"):
                return (MODELS, name, *path[len(role) :])
        return path

    def _section(self, path: Keys, source: str) -> Values:
        """Return the mapping at a path; make it, from its default, if it does not exist."""
        values = self.values
        for depth, name in enumerate(path, start=1):
            default = _plain().get(_known(path[:depth]), {})
            made = dict(cast("Values", default)) if isinstance(default, dict) else default
            inner = values.setdefault(name, made)
            if not isinstance(inner, dict):
                where, above = ".".join(path), ".".join(path[:depth])
                raise ConfigError(f"{source}: {where}: {above} is a value, not a section")
            values = cast("Values", inner)
        return values


@cache
def _plain() -> Mapping[Keys, object]:
    """Return the default of each field by its path."""
    return {tuple(field.path.split(".")): field.default for field in (*settable(), *fields())}


@cache
def _sections() -> frozenset[Keys]:
    return frozenset(path[:depth] for path in _plain() for depth in range(1, len(path)))


def _leaves(values: Values, above: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yield values by their paths; a plain mapping, such as critic.task_aspects, is one value."""
    for name, value in values.items():
        path = (*above, name)
        if isinstance(value, dict) and value and _known(path) not in _plain():
            yield from _leaves(cast("Values", value), path)
        elif value is not None or _known(path) not in _sections():
            # `policy:` with an empty value sets nothing.
            yield path, cast("object", value)


def _named(given: Sequence[tuple[Keys, object, str]]) -> Mapping[Keys, str]:
    """Return the roles whose `model` is a name in `models`, with that name."""
    models = {path[1] for path, _, _ in given if path[0] == MODELS and len(path) > 1}
    last = {path: value for path, value, _ in given}
    named = ((path, last.get((*path, "model"))) for path in (tuple(r.split(".")) for r in roles()))
    return {role: name for role, name in named if isinstance(name, str) and name in models}


def _known(path: Keys) -> Keys:
    """Return the path under which the schema knows a field of a named model."""
    return (MODELS, ANY_NAME, *path[2:]) if path[:1] == (MODELS,) and len(path) > 1 else path


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
