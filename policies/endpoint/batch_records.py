"""The batch files that were sent, on disk, so that a later process finds their answers again.

A record is written before its batch begins: whoever finds one without a batch looks for the batch
of its file at the endpoint, and begins it if there is none. So no request is paid for twice.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...stores.durable import discard, make_folder, write_file
from ...stores.keys import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A file of requests at an endpoint: what is asked in it, and the batch that answers it.

    `number` says in which order the files of a folder were sent.
    """

    number: int
    url: str
    file: str
    asked: tuple[str, ...]
    batch: str | None = None


class BatchRecords:
    """The records in one folder of those files that were sent to one endpoint."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url

    def all(self) -> list[BatchRecord]:
        """Return all records, the earliest file first."""
        paths = self._folder.glob("[!.]*.json")
        own = [record for record in _read(paths) if record.url == self._url]
        return sorted(own, key=lambda record: record.number)

    def keep(self, record: BatchRecord) -> None:
        """Write a record, in the place of one of the same file."""
        make_folder(self._folder)
        write_file(self._path(record), json.dumps(asdict(record)).encode())

    def forget(self, record: BatchRecord) -> None:
        """Remove a record."""
        discard(self._path(record))

    def _path(self, record: BatchRecord) -> Path:
        return self._folder / f"{digest([record.url, record.file])[:32]}.json"


def _read(paths: Iterable[Path]) -> Iterable[BatchRecord]:
    for path in paths:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        read = BatchRecord(**fields)
        yield replace(read, asked=tuple(read.asked))
