"""A run from outside: how it stands, who works on it, and ending who does."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import polars as pl

from ...configs.load import stored_config
from ...stores.address import bucket_of
from ...stores.journal_reader import Reader
from ...stores.keys import Json
from ...stores.lake import RunReader
from ..lake.query.runs import status
from ..run.processes import children, start_ticks
from .control import (
    PAUSED,
    START,
    ControlError,
    Look,
    NoDaemonError,
    State,
    Stop,
    alive,
    ask,
)
from .progress import progress, spend

POLL_S = 0.1
KILLED_S = 10.0
"""How long a process that was told to end at once may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """Who works on a run, or did last; `state` is running, paused, stopping, silent or ended."""

    state: str
    pid: int | None
    host: str | None
    started: str | None

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return {
            "state": self.state,
            "pid": self.pid,
            "host": self.host,
            "started": self.started,
        }


def daemon_of(reader: Reader) -> Daemon:
    """Return who works on a run."""
    who = _last_start(reader)
    return Daemon(
        state=_state(reader),
        pid=who.get("pid"),
        host=who.get("host"),
        started=who.get("started"),
    )


def _state(reader: Reader) -> str:
    if not alive(reader.folder):
        return "ended, paused" if reader.meta(PAUSED) == "1" else "ended"
    try:
        state: State = ask(reader.folder, Look())
    except NoDaemonError:
        return "ended"
    except ControlError:
        return "silent"
    return "stopping" if state.stopping else "paused" if state.paused else "running"


def overview(run: RunReader, iteration: int | None) -> dict[str, Any]:
    """Return a run's status with its progress by stage, what it has spent, and its daemon."""
    reader = run.journal
    found: dict[str, Any] = status(run, iteration)
    daemon = daemon_of(reader)
    stages = progress(reader, running=not daemon.state.startswith("ended"))
    for turn in found["iterations"]:
        turn["stages"] = [
            stage.as_json() for stage in stages if stage.iteration == turn["iteration"]
        ]
    config = stored_config(json.loads(reader.meta("config") or "{}"), (), {})
    place = {"folder": str(reader.folder), "bucket": bucket_of(reader.folder.parent.parent)}
    return {**found, **place, "daemon": daemon.as_json(), "spend": spend(reader, config.budget)}


def stage_rows(found: Mapping[str, Any]) -> pl.DataFrame:
    """Return an overview's stages as rows."""
    rows = [
        {"iteration": turn["iteration"], **stage}
        for turn in found["iterations"]
        for stage in turn["stages"]
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def stop_run(folder: Path, *, now: bool, say: Callable[[str], None]) -> int:
    """Stop the daemon of a run and wait until its process is gone; return its id.

    With `now` nothing in flight is waited for, and a daemon that does not answer is killed.

    Raises:
        NoDaemonError: if nobody works on the run.
        ControlError: if the daemon does not answer, or does not end.
    """
    pid, ticks = _whom(folder)
    below = list(children(pid))
    try:
        ask(folder, Stop(now=now))
    except NoDaemonError:
        if start_ticks(pid) != ticks:  # It ended while it was asked.
            return pid
        raise
    except ControlError:
        if not now:
            raise
        _kill(pid, ticks, below)
    say(f"process {pid} is asked to stop" if not now else f"process {pid} is stopped at once")
    limit = time.monotonic() + KILLED_S
    while start_ticks(pid) == ticks:
        if now and time.monotonic() > limit:
            _kill(pid, ticks, below)
        time.sleep(POLL_S)
    return pid


def _whom(folder: Path) -> tuple[int, int]:
    """Return the process that works on a run, by its id and its start time."""
    if not alive(folder):
        raise NoDaemonError(f"no daemon works on run {folder.name} on this machine")
    reader = Reader(folder)
    who = _last_start(reader)
    reader.close()
    pid, ticks = int(who["pid"]), who["ticks"]
    if who["host"] != socket.gethostname() or ticks is None or start_ticks(pid) != ticks:
        raise ControlError(
            f"the process that works on run {folder.name} can not be seen from here: it is "
            f"process {pid} of {who['host']}"
        )
    return pid, ticks


def _kill(pid: int, ticks: int, below: list[int]) -> None:
    """Kill a process that is still the one that was meant, and its descendants."""
    if start_ticks(pid) != ticks:
        return
    for victim in (pid, *below):
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def _last_start(reader: Reader) -> dict[str, Any]:
    events = reader.events(START)
    return cast("dict[str, Any]", events[-1]) if events else {}
