"""Pools: lists of named entries in YAML, shipped, or the user's, which may extend a shipped one.

A file has one list, under the plural name of its entries. With `extends: NAME` it starts from a
shipped pool: an entry of a known name replaces only the fields that it states, a new name adds an
entry.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from .read import EXTENDS, parse_yaml
from .schema import ConfigError
from .section import Section

Entries = dict[str, dict[str, Any]]
"""The fields that a file states for each entry, by its name."""
S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one kind: the folder of the shipped ones, and the word for an entry.

    `nested` are the fields that are mappings themselves, of which an entry may state a part; their
    keys may be integers.
    """

    folder: Path
    item: str
    nested: frozenset[str] = frozenset()

    @property
    def items(self) -> str:
        """The plural word for entries, which is also the key in a file."""
        return f"{self.item}s"

    def shipped_names(self) -> tuple[str, ...]:
        """Return the names of the pools that come with the package."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.yaml")))

    def place(self, name_or_path: str) -> Path:
        """Return the file of a shipped pool, or `name_or_path` as a path."""
        is_shipped = name_or_path in self.shipped_names()
        return self.folder / f"{name_or_path}.yaml" if is_shipped else Path(name_or_path)

    def read(self, path: Path, section: type[S]) -> list[S]:
        """Return the entries of a file as sections of the configuration.

        Raises:
            ConfigError: if it is not a list of such entries; names the file, the entry and the
                field.
        """
        return [
            self.as_section(path, name, entry, section)
            for name, entry in self.entries(path).items()
        ]

    def as_section(self, path: Path, name: str, entry: dict[str, Any], section: type[S]) -> S:
        """Return an entry of a file as a section of the configuration.

        Raises:
            ConfigError: if it is not valid; names the file, the entry and the field.
        """
        try:
            return section.model_validate(entry)
        except ValidationError as error:
            problem = fault(error, section)
            raise ConfigError(f"{path}: {self.item} {name!r}: {problem}") from error

    def entries(self, path: Path, *, may_extend: bool = True) -> Entries:
        """Return the entries of a file by name, merged over the pool that it extends.

        Raises:
            ConfigError: if it cannot be read, or is not a list of named entries; names the file,
            and the line or the entry.
        """
        document = self._document(path)
        base = document.get(EXTENDS)
        if base is not None and (not may_extend or base not in self.shipped_names()):
            names = ", ".join(self.shipped_names())
            raise ConfigError(
                f"{path}: 'extends' must name a shipped pool that extends none ({names})"
            )
        merged = {} if base is None else self.entries(self.place(str(base)), may_extend=False)
        inherited = frozenset(merged)
        listed = document.get(self.items)
        if not isinstance(listed, list) or not listed:
            raise ConfigError(
                f"{path}: {self.items!r} must be a list with at least one {self.item}"
            )
        stated = set[str]()
        for number, raw in enumerate(cast("list[object]", listed), start=1):
            where = f"{path}: {self.item} {number}"
            entry = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            name = entry.get("name")
            if not isinstance(name, str):
                raise ConfigError(
                    f"{where} must be a mapping with a name and what differs from others"
                )
            if name in stated:
                raise ConfigError(f"{where}: the name {name!r} appears twice")
            stated.add(name)
            merged[name] = self._overlaid(merged[name], entry) if name in inherited else entry
        return merged

    def _overlaid(self, base: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry laid over the one of its name that it starts from."""
        nested = (n for n in self.nested if isinstance(entry.get(n), dict))
        return base | entry | {name: base[name] | entry[name] for name in nested}

    def _document(self, path: Path) -> dict[str, object]:
        document = read_yaml(
            path,
            missing=f"no pool of {self.items} can be read",
            hint=f"; shipped are {', '.join(self.shipped_names())}",
            integer_keys=bool(self.nested),
        )
        fields = cast("dict[object, object]", document) if isinstance(document, dict) else {}
        unknown = [key for key in fields if key not in (self.items, EXTENDS)]
        if not fields or unknown:
            what = f"unknown field {unknown[0]!r}" if unknown else "must be a mapping"
            raise ConfigError(
                f"{path}: {what}; a pool has {self.items!r}, and 'extends' if need be"
            )
        return {str(key): value for key, value in fields.items()}


def read_yaml(path: Path, *, missing: str, hint: str = "", integer_keys: bool = False) -> object:
    """Return the data of a YAML file; `missing` is the message if it cannot be read.

    Raises:
        ConfigError: naming the file, and the line if there is one.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), integer_keys=integer_keys)
    except OSError as error:
        raise ConfigError(f"{path}: {missing} ({error.strerror}){hint}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def fault(error: ValidationError, section: type[Section]) -> str:
    """Return the first mistake: the field, the kind of mistake, the value."""
    item = error.errors()[0]
    field = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        known = f"; the fields are {', '.join(section.model_fields)}" if "." not in field else ""
        return f"unknown field {field!r}{known}"
    if item["type"] == "missing":
        return f"the field {field!r} is missing"
    text = item["msg"].replace("Input should", "must", 1)
    return f"{field}: {text}, not {item['input']!r}"
