"""Values of several sources, laid over one another, and which source set each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from .describe import fields
from .read import Layer, Values
from .section import ConfigError

TINY = "tiny"
TOYS = f"preset {TINY}/"
"""The source of what the tiny world's presets say."""
FACTS_JUDGE = ("facts", "judge")


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

    def forget_toys(self) -> None:
        """Drop what the tiny world's presets name that knows its own prompts alone, for others.

        These are its models, and how it judges facts. Who wants one of its models all the same
        names it: `--critic tiny`.
        """
        if self._section(("prompts",)).get("source") == TINY:
            return
        if self.sources.get(FACTS_JUDGE, "").startswith(TOYS):
            self._section(FACTS_JUDGE[:-1]).pop(FACTS_JUDGE[-1])
            del self.sources[FACTS_JUDGE]
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
