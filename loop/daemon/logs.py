"""The run's log: JSON lines in `logs/run.jsonl`: bounded, without secrets, and never fatal.

A line is one object: `time` (UTC), `level`, `logger`, `message`, and `fields` if the record has
some; fields of a run's reports are the `event` by name and its numbers. A log that cannot be
written must not stop a run of weeks.
"""

import json
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

from ...configs.secrecy import redact
from ...stores.keys import Json
from ..run.reporter import EVERY_S, RUN_LOGGER, Reporter, UnitStats

LOGS = "logs"
RUN_LOG = "run.jsonl"
DAEMON_LOG = "daemon.log"
LOGGER = "lpfloop"
FIELDS = "fields"
FILE_BYTES = 5_000_000
FILES_KEPT = 5
LONGEST_MESSAGE = 16_384
"""The most characters of a message: an endpoint's error may be very long."""


class JsonLineFormatter(logging.Formatter):
    """One JSON object a line: ASCII, so that no text can forge a line or drive a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(message)[:LONGEST_MESSAGE],
        }
        fields = cast("Mapping[str, object] | None", getattr(record, FIELDS, None))
        if fields:
            line[FIELDS] = {name: _plain(value) for name, value in fields.items()}
        return json.dumps(line, ensure_ascii=True)


def _plain(value: object) -> object:
    """Return numbers as they are, anything else as a text without secrets."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))[:LONGEST_MESSAGE]


class BoundedLog(RotatingFileHandler):
    """A rotated file that ignores its own errors: a full disk, a removed folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="ascii", delay=True
        )
        self.setFormatter(JsonLineFormatter())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Drop a record that cannot be written."""
        del record
        with suppress(OSError):
            super().close()

    def close(self) -> None:
        """Close the file, ignoring errors of the disk."""
        with suppress(OSError):
            super().close()


@contextmanager
def logging_to(folder: Path) -> Generator[None]:
    """Write everything that `lpfloop` and its libraries log to the run's log."""
    handler = BoundedLog(folder / LOGS / RUN_LOG)
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        handler.close()


def bound_logs(folder: Path) -> None:
    """Rotate logs of child processes that have grown too long; no process may be writing them."""
    for path in (folder / LOGS).glob("*.log"):
        with suppress(OSError):
            if path.stat().st_size > FILE_BYTES:
                handler = RotatingFileHandler(path, backupCount=1, delay=True)
                handler.doRollover()
                handler.close()


class LogReporter:
    """Logs a run's reports: stages with their counts, and notes."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(RUN_LOGGER)
        self._sums: dict[tuple[int, str], UnitStats] = {}
        self._warned_at = -EVERY_S

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Log that a stage begins."""
        self._sums[iteration, stage] = UnitStats()
        self._log(
            "stage begins",
            "stage begins",
            iteration=iteration,
            stage=stage,
            planned=planned,
            done=done,
        )

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Add a unit's counts."""
        self._sums[iteration, stage] += advance

    def end(self, iteration: int, stage: str) -> None:
        """Log the stage's results in this process."""
        made = self._sums.pop((iteration, stage)).numbers
        self._log("stage ends", "stage ends", iteration=iteration, stage=stage, **made)

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Log how far a unit is, at most each `EVERY_S`."""
        if time.monotonic() - self._warned_at >= EVERY_S:
            self._warned_at = time.monotonic()
            self._log(text, "working", iteration=iteration, stage=stage, left_s=left_s)

    def note(self, text: str, event: str = "note", **fields: Json) -> None:
        """Log an event; if one stage is under way, its name is added unless `fields` has one."""
        if len(self._sums) == 1:
            ((iteration, stage),) = self._sums
            fields = {"iteration": iteration, "stage": stage, **fields}
        self._log(text, event, logging.WARNING if "code" in fields else logging.INFO, **fields)

    def close(self) -> None:
        """Do nothing: the log belongs to `logging_to`."""

    def _log(
        self, message: str, event: str, level: int = logging.INFO, /, **fields: object
    ) -> None:
        self._logger.log(level, "%s", message, extra={FIELDS: {"event": event, **fields}})


class Tee:
    """Passes each report to several reporters."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = reporters

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Pass on that a stage begins."""
        for reporter in self._reporters:
            reporter.begin(iteration, stage, planned=planned, done=done)

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Pass on that a unit is committed."""
        for reporter in self._reporters:
            reporter.advance(iteration, stage, advance)

    def end(self, iteration: int, stage: str) -> None:
        """Pass on that the stage is over."""
        for reporter in self._reporters:
            reporter.end(iteration, stage)

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Pass on how far a unit is."""
        for reporter in self._reporters:
            reporter.working(iteration, stage, text, left_s)

    def note(self, text: str, event: str = "note", **fields: Json) -> None:
        """Pass on an event."""
        for reporter in self._reporters:
            reporter.note(text, event, **fields)
