"""Values of several sources, merged, and the source of each."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import cast

from .describe import fields, roles, settable
from .engines import ANY_NAME, MODELS
from .mistakes import ConfigError
from .read import Layer, Values

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value set from outside the files; messages call it by its `source` (`--seed`)."""

    source: str
    path: str
    value: object


class MergedLayers:
    """Values merged so far, and for each the source that set it.

    `named` are the models that roles name: settings of such a role's engine are the model's.
    """

    def __init__(self, named: Mapping[str, str] | None = None) -> None:
        self.values: Values = {}
        self.sources: dict[Path, str] = {}
        # A plain mapping, such as critic.task_aspects, is replaced as a whole, never merged.
        known = chain(settable(), fields())
        self._plain = {tuple(field.path.split(".")): field.default for field in known}
        self._sections = {path[:depth] for path in self._plain for depth in range(1, len(path))}
        self._named = named or {}
        self._engines = {
            (*role.split("."), "engine"): (MODELS, name, "engine")
            for role, name in self._named.items()
        }

    def add(self, layer: Layer) -> None:
        """Lay a layer over the present values."""
        self._merge(self.values, layer.values, (), layer.source)

    def has(self, path: str) -> bool:
        """Whether a source has set this value."""
        return tuple(path.split(".")) in self.sources

    def put(self, override: Override) -> None:
        """Lay one value over the present ones."""
        path = self._move(tuple(override.path.split(".")))
        values = self._section(path[:-1], override)
        self._merge(values, {path[-1]: override.value}, path[:-1], override.source)
        if path[:-1]:  # The last source of a section is to blame for its errors.
            self.sources[path[:-1]] = override.source

    def named_models(self) -> Mapping[str, str]:
        """Return the roles whose `model` is a name in `models`, with that name."""
        models = _at(self.values, (MODELS,))
        if not isinstance(models, dict):
            return {}
        named = ((role, _at(self.values, (*role.split("."), "model"))) for role in roles())
        return {role: name for role, name in named if isinstance(name, str) and name in models}

    def give_models(self) -> None:
        """Copy location and engine of a model into each role that names it."""
        models = cast("Mapping[str, Values]", self.values.pop(MODELS, {}))
        for role, name in self._named.items():
            path = tuple(role.split("."))
            section = self._section(path)
            section["model"] = models[name].get("location") or name
            section["engine"] = deepcopy(models[name].get("engine", {}))
            engine = (MODELS, name, "engine")
            for of, source in [*self.sources.items()]:
                if of[: len(engine)] == engine:
                    self.sources[*path, *of[2:]] = source

    def _move(self, path: Path) -> Path:
        """Return the path of a setting of a role's engine as one of the model that it names."""
        for engine, of_model in self._engines.items():
            if path[: len(engine)] == engine:
                return (*of_model, *path[len(engine) :])
        return path

    def _section(self, path: Path, override: Override | None = None) -> Values:
        """Return the mapping at a path; make it if it does not exist."""
        values = self.values
        for depth, name in enumerate(path, start=1):
            inner = values.setdefault(name, self._empty(path[:depth]))
            if not isinstance(inner, dict):
                above = ".".join(path[:depth])
                source, of = ("", above) if override is None else (override.source, override.path)
                raise ConfigError(f"{source}: {of}: {above} is a value, not a section")
            values = cast("Values", inner)
        return values

    def _empty(self, path: Path) -> object:
        """Return the value at `path` before anything is set: an empty section, or the default."""
        default = self._plain.get(_known_path(path), {})
        return dict(cast("Values", default)) if isinstance(default, dict) else default

    def _merge(self, into: Values, new: Values, prefix: Path, source: str) -> None:
        for name, value in new.items():
            path = (*prefix, name)
            if value is None and _known_path(path) in self._sections:
                continue  # `policy:` with an empty value sets nothing
            if path in self._engines and isinstance(value, dict):
                moved = self._engines[path]
                self._merge(self._section(moved), cast("Values", value), moved, source)
            elif isinstance(value, dict) and _known_path(path) not in self._plain:
                inner = into.get(name)
                into[name] = inner if isinstance(inner, dict) else {}
                self._merge(cast("Values", into[name]), cast("Values", value), path, source)
                self.sources[path] = source
            else:
                into[name] = dict(cast("Values", value)) if isinstance(value, dict) else value
                self.sources[path] = source


def _known_path(path: Path) -> Path:
    """Return the path under which the schema knows a field of a named model."""
    return (MODELS, ANY_NAME, *path[2:]) if path[:1] == (MODELS,) and len(path) > 1 else path


def _at(value: object, path: Path) -> object:
    """Return the value at a path below another value, or None."""
    if not path:
        return value
    return _at(cast("Values", value).get(path[0]), path[1:]) if isinstance(value, dict) else None
