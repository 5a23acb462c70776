"""Values of several sources, merged, and the source of each."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
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
    """Values laid over each other, later ones over earlier ones, and the source of each.

    A setting of a role's engine is one of the model in `models` that the role names in the end. So
    it applies to every role that names the model.
    """

    def __init__(self, layers: Sequence[Layer], overrides: Sequence[Override]) -> None:
        self.values: Values = {}
        self.sources: dict[Path, str] = {}
        given = [(path, v, layer.source) for layer in layers for path, v in _leaves(layer.values)]
        for item in overrides:
            *above, last = item.path.split(".")
            found = _leaves({last: item.value}, tuple(above))
            given += [(path, value, item.source) for path, value in found]
        self.named = _named(given)
        for path, value, source in given:
            self.put(self._of_model(path), value, source)

    def put(self, path: Path, value: object, source: str) -> None:
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

    def _of_model(self, path: Path) -> Path:
        """Return the path of a setting of a role's engine as one of the model that it names."""
        for role, name in self.named.items():
            if path[: len(role) + 1] == (*role, "engine"):
                return (MODELS, name, *path[len(role) :])
        return path

    def _section(self, path: Path, source: str) -> Values:
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
def _plain() -> Mapping[Path, object]:
    """Return the default of each field by its path."""
    return {tuple(field.path.split(".")): field.default for field in (*settable(), *fields())}


@cache
def _sections() -> frozenset[Path]:
    return frozenset(path[:depth] for path in _plain() for depth in range(1, len(path)))


def _leaves(values: Values, above: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield values by their paths; a plain mapping, such as critic.task_aspects, is one value."""
    for name, value in values.items():
        path = (*above, name)
        if isinstance(value, dict) and value and _known(path) not in _plain():
            yield from _leaves(cast("Values", value), path)
        elif value is not None or _known(path) not in _sections():
            # `policy:` with an empty value sets nothing.
            yield path, cast("object", value)


def _named(given: Sequence[tuple[Path, object, str]]) -> Mapping[Path, str]:
    """Return the roles whose `model` is a name in `models`, with that name."""
    models = {path[1] for path, _, _ in given if path[0] == MODELS and len(path) > 1}
    last = {path: value for path, value, _ in given}
    named = ((path, last.get((*path, "model"))) for path in (tuple(r.split(".")) for r in roles()))
    return {role: name for role, name in named if isinstance(name, str) and name in models}


def _known(path: Path) -> Path:
    """Return the path under which the schema knows a field of a named model."""
    return (MODELS, ANY_NAME, *path[2:]) if path[:1] == (MODELS,) and len(path) > 1 else path
