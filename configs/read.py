"""Reading YAML files of the configuration, and the presets that they extend.

Only plain data is built from YAML, and a duplicate key is refused: the second would win silently. A
file may have `extends: NAME`: a preset world (`tiny`), or another file in the same folder.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from .mistakes import did_you_mean
from .recipe_names import DEFAULT_RECIPE, recipe_class
from .schema import PRESETS, ConfigError

EXTENDS = "extends"
LONGEST_CHAIN = 8
"""A longer chain of files that extend each other counts as a circle."""

Values = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The values of one source, and its name in messages."""

    source: str
    values: Values


class _Loader(yaml.SafeLoader):
    """Plain data only; every key a text, and unique. Integers become texts if allowed."""

    integer_keys = False

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[Hashable, object]:
        """Build a mapping; refuse keys that are not unique strings."""
        seen = set[str]()
        for key_node, _ in node.value:
            key = cast("object", self.construct_object(key_node, deep=True))  # pyright: ignore[reportUnknownMemberType]
            line = key_node.start_mark.line + 1
            if self.integer_keys and type(key) is int:
                key = str(key)
            if not isinstance(key, str):
                raise ConfigError(f"line {line}: the key {key} is not a string; put it in quotes")
            if key in seen:
                raise ConfigError(f"line {line}: the key {key!r} appears twice; remove one")
            seen.add(key)
        return {str(key): value for key, value in super().construct_mapping(node, deep).items()}


def parse_yaml(text: str, *, integer_keys: bool = False) -> object:
    """Return the data of one YAML document, whose keys are texts, or integers if allowed.

    Raises:
        ConfigError: if it is not YAML, or has a duplicate key; the message names the line.
    """
    try:
        loader = _Loader(text)
        loader.integer_keys = integer_keys
        try:
            return cast("object", loader.get_single_data())
        finally:
            loader.dispose()  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{where}not readable as YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"not readable as YAML: {reason}") from error
    except (RecursionError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"not readable as YAML: {type(error).__name__}: {error}") from error


def presets() -> list[str]:
    """Return the names of the shipped preset worlds."""
    return sorted(folder.name for folder in PRESETS.iterdir() if any(folder.glob("*.yaml")))


def preset_file(world: str, recipe: str) -> Path:
    """Return the file of a shipped preset: the recipe's, or the one of its settings' class.

    Raises:
        ConfigError: if world or recipe does not exist, or the world lacks the recipe.
    """
    if world not in presets():
        hint = did_you_mean(world, presets())
        names = ", ".join(presets())
        raise ConfigError(f"unknown preset or file {world!r}; {hint}presets: {names}")
    kind = recipe_class(recipe)
    own = PRESETS / world / f"{kind.model_fields['name'].default}.yaml"
    found = own if own.is_file() else PRESETS / world / f"{kind.preset}.yaml"
    if not found.is_file():
        raise ConfigError(
            f"the preset {world} does not support {recipe}: name the models and prompts yourself, "
            f"by `extends: own`, or `--config own --recipe {recipe}`"
        )
    return found


def is_file_name(name: str) -> bool:
    """Whether `name` means a file, not a preset: by its form, or because the file exists."""
    return "/" in name or name.endswith((".yaml", ".yml")) or Path(name).is_file()


def read_file(path: Path) -> Layer:
    """Read one file, without the files it extends.

    Raises:
        ConfigError: if it cannot be read, or is not a mapping.
    """
    shipped = path.is_relative_to(PRESETS)
    source = f"preset {path.relative_to(PRESETS)}" if shipped else str(path)
    try:
        values = parse_yaml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 at byte {error.start}") from error
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        kind = type(values).__name__
        raise ConfigError(f"{source}: the file must hold `key: value` lines, but is a {kind}")
    return Layer(source=source, values=cast("Values", values))


def read_chain(path: Path, recipe: str | None, left: int = LONGEST_CHAIN) -> list[Layer]:
    """Read a file and all files that it extends, the most general first.

    `recipe` chooses the file of a preset; without one, the recipe that the files name is used.

    Raises:
        ConfigError: as `read_file`, and for files that extend each other in a circle.
    """
    return extend_layers(read_file(path), path, recipe, left)


def extend_layers(
    layer: Layer, path: Path, recipe: str | None, left: int = LONGEST_CHAIN
) -> list[Layer]:
    """Return a layer after all layers that it extends; file names are relative to `path`.

    Raises:
        ConfigError: as `read_chain`.
    """
    base = layer.values.pop(EXTENDS, None)
    if base is None:
        return [layer]
    if not isinstance(base, str) or not base:
        raise ConfigError(f"{layer.source}: extends: must be the name of a preset or of a file")
    if not left:
        raise ConfigError(f"{layer.source}: extends: the files extend each other in a circle")
    recipe = recipe or named_recipe(layer.values)
    if path.is_relative_to(PRESETS):
        return [*read_chain(path.with_name(f"{base}.yaml"), recipe, left - 1), layer]
    if is_file_name(base):
        return [*read_chain(path.parent / base, recipe, left - 1), layer]
    try:
        preset = preset_file(base, recipe or DEFAULT_RECIPE)
    except ConfigError as error:
        raise ConfigError(f"{layer.source}: extends: {error}") from error
    return [*read_chain(preset, recipe, left - 1), layer]


def named_recipe(values: Values) -> str | None:
    """Return the recipe's name in `values`, if it is set."""
    recipe = values.get("recipe")
    name = cast("Values", recipe).get("name") if isinstance(recipe, dict) else None
    return name if isinstance(name, str) else None
