"""Values of several sources, laid over one another, and which source set each."""

from dataclasses import dataclass
from typing import cast

from .describe import fields
from .read import Layer, Values
from .section import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value set from outside the files; messages call it by its `source` (`--seed`)."""

    source: str
    path: str
    value: object


class MergedLayers:
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
        if path[:-1]:  # What its section refuses as a whole is by whom touched it last.
            self.sources[path[:-1]] = override.source

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
