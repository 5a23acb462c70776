"""The files of the user's own that a run depends on: hashed when it begins, and kept with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...configs.load import resolve_config
from ...configs.own_function import file_of, hash_of, names_function
from ...configs.schema import ConfigError, RunConfig
from ...stores.journal_reader import Reader
from ...stores.keys import Json
from ...stores.lake import OWN, RunWriter

FIELDS = ("recipe.name", "critic.verifier", "reward.model")
"""The settings that may name a function of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFile:
    """The file that a setting names a function of."""

    field: str
    place: str
    source: bytes
    sha256: str


def own_files(config: RunConfig) -> list[OwnFile]:
    """Read the files of the user's own that a configuration names.

    Raises:
        ConfigError: if one cannot be read.
    """
    found = list[OwnFile]()
    for field, place in _places(resolve_config(config)).items():
        _, source, sha256 = file_of(place)
        found.append(OwnFile(field=field, place=place, source=source, sha256=sha256))
    return found


def own_digests(files: list[OwnFile]) -> Mapping[str, Json]:
    """Return the part of a run's fingerprint about them; empty without such files."""
    return {OWN: {file.field: file.sha256 for file in files}} if files else {}


def keep_own_files(store: RunWriter, files: list[OwnFile]) -> None:
    """Keep a copy of each in the run's folder."""
    for file in files:
        store.keep_own(_copy(file.place, file.sha256), file.source)


def require_own_files(reader: Reader) -> None:
    """Refuse to continue a run whose files of the user's own have changed.

    Raises:
        ConfigError: naming the run's copy.
    """
    began: Mapping[str, str] = json.loads(reader.meta("fingerprint") or "{}").get(OWN, {})
    places = _places(json.loads(reader.meta("config") or "{}"))
    for field, sha256 in began.items():
        place = places[field]
        now = hash_of(place)
        if now != sha256:
            where = place.rpartition(":")[0]
            copy = reader.folder / OWN / _copy(place, sha256)
            what = "is not there" if now is None else "has changed since"
            raise ConfigError(
                f"{field}: run {reader.folder.name} began with another {where}, which {what}: "
                f"restore the run's copy, {copy}, or start a new run with --run NEW --reuse-from "
                f"{reader.folder.name}, which reuses every unit that does not depend on it"
            )


def _copy(place: str, sha256: str) -> str:
    """Return the name of a file's copy in the folder of a run."""
    module = Path(place.rpartition(":")[0].removesuffix(".py")).name.rpartition(".")[2]
    return f"{module}-{sha256[:12]}.py"


def _places(config: Mapping[str, Json]) -> dict[str, str]:
    """Return the places of the user's own functions in a resolved configuration, by field."""
    found = dict[str, str]()
    for field in FIELDS:
        section, name = field.split(".")
        values = config.get(section)
        place = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(place, str) and names_function(place):
            found[field] = place
    return found
