"""The file that lists endpoints, read again when it changes."""

import logging
from pathlib import Path

from ...configs.endpoint_list import ListedEndpoint, read_endpoint_list
from ...configs.schema import ConfigError
from ..engines.engine import EngineError
from .endpoint import with_base_urls

logger = logging.getLogger("lpfloop.endpoint")

Stamp = tuple[int, int, int]


class EndpointFile:
    """What a file lists, each time that it changes.

    It is read when one look finds it as the look before did: half a file that is being written may
    be a list, too, with half a URL at its end. One that cannot be used is told of once, and what it
    listed before holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self._seen = self._stamp()

    def changed(self) -> tuple[ListedEndpoint, ...] | None:
        """Return what the file lists now; None if that is not new, or cannot be used."""
        before, self._seen = self._seen, self._stamp()
        if self._seen in (self._read, None) or self._seen != before:
            return self._missing(before)
        self._read = self._seen
        try:
            return with_base_urls(read_endpoint_list(self._path))
        except (ConfigError, EngineError) as error:
            logger.warning("%s; the endpoints that it listed before stay in use", error)
            return None

    def _missing(self, before: Stamp | None) -> None:
        """Tell once that the file is gone."""
        if self._seen is None and before is not None:
            logger.warning(
                "%s: the list of endpoints is gone; those that it listed stay in use", self._path
            )

    def _stamp(self) -> Stamp | None:
        """Return what changes with the file; None if it is not there."""
        try:
            told = self._path.stat()
        except OSError:
            return None
        return told.st_mtime_ns, told.st_size, told.st_ino
