"""Adopting a run of a bucket on this machine, and what resuming it will do."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...configs.load import stored_config
from ...stores.adoption import AdoptedRun, adopt
from ...stores.lake import RunReader
from ..lake.imports import IMPORTED
from .resuming import outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A run that is this machine's now; `told` are lines on it, on its journal and its future."""

    run: str
    folder: Path
    told: tuple[str, ...]


def adoption(lake: Path, name: str | None, *, force: bool = False) -> Adoption:
    """Adopt a run of a bucket; see `stores.adoption`.

    Raises:
        AdoptionError, AdoptedError, BucketError: as `adopt`.
    """
    adopted = adopt(lake, name, force=force)
    with closing(RunReader(adopted.folder)) as reader:
        told = (*_found(adopted), *_future(reader))
    return Adoption(run=adopted.folder.name, folder=adopted.folder, told=told)


def _found(adopted: AdoptedRun) -> Iterator[str]:
    """Yield lines on the journal and the objects that were found."""
    snapshot = adopted.snapshot
    when = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(snapshot.changed))
    yield f"run {adopted.folder.name} is this machine's now; before, it was {adopted.before.told()}"
    yield (
        f"its journal is snapshot {snapshot.number} of epoch {snapshot.epoch}, of {when}: what was "
        "committed after it is owed again"
    )
    if adopted.passed_over:
        yield f"newer snapshots that are damaged, and were passed over: {adopted.passed_over}"
    if adopted.missing:
        units = len({damage.unit for damage in adopted.missing})
        yield f"{units:,} units are owed again, as their objects are not in the bucket"


def _future(reader: RunReader) -> Iterator[str]:
    """Yield lines on what `lpfloop resume` will do."""
    if reader.journal.meta(IMPORTED) is not None:
        yield "its rows were imported: there is no loop to continue"
        return
    stored = json.loads(reader.journal.meta("config") or "{}")
    yield from outlook(reader, stored_config(stored, (), os.environ, to_run=False))
