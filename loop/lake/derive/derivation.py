"""Derived tables by name: a name belongs to one lineage, and its table is made once."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from .... import __version__
from ....stores.derived import (
    Derived,
    DerivedError,
    Draft,
    derived_names,
    deriving,
    open_derived,
)
from ....stores.keys import Json
from ....stores.lake import RUN_NAME, RunReader

FOUND = frozenset({"found", "rows", "version", "created"})
"""The lineage's fields about the outcome; the rest is the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """A derived table, and whether it was there already."""

    derived: Derived
    again: bool

    def as_json(self) -> dict[str, Json]:
        """Return its name, lineage and counts, for a JSON document."""
        return {"name": self.derived.name, "again": self.again, **self.derived.lineage}


def keep(
    run: RunReader,
    name: str,
    lineage: Mapping[str, Json],
    make: Callable[[Draft], Mapping[str, Json]],
) -> KeptTable:
    """Make a derived table, unless it is there; `make` adds its rows and returns counts.

    Raises:
        DerivedError: if the name cannot be used, or belongs to another lineage.
    """
    if not RUN_NAME.fullmatch(name):
        raise DerivedError(
            f"--name {name}: use 1 to 64 of a-z, 0-9, '.', '-' and '_', beginning with a letter or "
            "digit"
        )
    with deriving(run.folder) as draft:
        if name in derived_names(run.folder):
            return KeptTable(derived=_same(run, name, lineage), again=True)
        found = make(draft)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        facts = {**lineage, "found": found, "version": __version__, "created": created}
        return KeptTable(derived=draft.publish(name, facts), again=False)


def _same(run: RunReader, name: str, lineage: Mapping[str, Json]) -> Derived:
    """Return the derived table of that name; it must have that lineage."""
    there = open_derived(run.folder, name)
    expected = json.loads(json.dumps(lineage))
    identity = {key: value for key, value in there.lineage.items() if key not in FOUND}
    if identity != expected:
        others = sorted(
            key for key in {*identity, *expected} if identity.get(key) != expected.get(key)
        )
        raise DerivedError(
            f"derived table {name} of run {run.folder.name} was made in another way "
            f"({', '.join(others)}): choose another --name"
        )
    return there
