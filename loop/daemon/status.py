"""A run from outside: its state, its process, and stopping that process."""

import math
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from ...stores.address import bucket_of
from ...stores.journal_file import CommitCount
from ...stores.journal_reader import Reader
from ...stores.keys import Json
from ...stores.lake import RunReader
from ...stores.side_evals import side_eval_of
from ..lake.query.alarm_list import alarms
from ..lake.query.next_steps import (
    AT_WORK,
    PAUSED,
    RUNNING,
    SILENT,
    STOPPING,
    read_state,
    run_needs,
)
from ..lake.query.run_status import status
from ..lake.trace.published_model import configuration
from ..run.stop import START, kill_all
from .control import PAUSED as PAUSE_KEPT
from .control import (
    Command,
    ControlError,
    NoDaemonError,
    State,
    alive,
    ask,
    since_boot,
)
from .plan import Plan
from .planning import head_lines, kept_plan
from .progress import Progress, busy, progress, spend, wall_seconds

POLL_S = 0.1
KILLED_S = 10.0
"""How long a process that must end at once may take."""
CLOCK_TICK_S = 0.01
"""The precision of a process's start time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """Who works on a run, or did last; `state` is running, paused, stopping, silent or ended."""

    state: str
    pid: int | None
    host: str | None
    started: str | None


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
    try:
        state: State = ask(reader.folder, Command(op="look"))
    except NoDaemonError:
        return "ended, paused" if reader.meta(PAUSE_KEPT) == "1" else "ended"
    except ControlError:
        return SILENT
    return STOPPING if state.stopping else PAUSED if state.paused else RUNNING


def overview(run: RunReader, iteration: int | None, where: str = "") -> dict[str, Any]:
    """Return a run's status: progress by stage, spending, its daemon, its next steps.

    `where` is the option that names the lake, for the commands of the next steps.
    """
    reader = run.journal
    found: dict[str, Any] = status(run, iteration)
    daemon = daemon_of(reader)
    stages = progress(reader, running=daemon.state in AT_WORK)
    for turn in (*found["iterations"], *found["side_evals"]):
        place = (turn["iteration"], turn.get("benchmark"))
        turn["stages"] = [
            asdict(stage)
            for stage in stages
            if (stage.iteration, side_eval_of(stage.stage)) == place
        ]
    folder = reader.folder
    plan, standing = kept_plan(reader), read_state(run, daemon.state, where)
    return {
        **found,
        "folder": str(folder),
        "bucket": bucket_of(folder.parent.parent),
        "snapshot": _snapshot(folder),
        "alarms": [asdict(alarm) for alarm in alarms(run, iteration)],
        "daemon": asdict(daemon),
        "needs": [need.as_json() for need in run_needs(standing)],
        "spend": spend(reader, configuration(run).budget),
        "busy": busy(stages, wall_seconds(reader, stages)),
        "plan": _plan_document(plan, stages, found["ended"]),
    }


def _snapshot(folder: Path) -> dict[str, Json] | None:
    """Return the last snapshot of a journal in its bucket, and how far behind it is (`lag_s`)."""
    if bucket_of(folder.parent.parent) is None:
        return None
    from ...stores.run_lease import last_snapshot  # A lake in a folder needs no client of a bucket.

    last = last_snapshot(folder)
    if last is None:
        return {"lag_s": None}
    behind = CommitCount.read(folder) > last.revision
    return {**asdict(last), "lag_s": time.time() - last.at if behind else 0.0}


def _plan_document(
    plan: Plan | None, begun: Sequence[Progress], ended: Json
) -> dict[str, Json] | None:
    """Return a run's plan, its head in lines, and the stages that it has not started."""
    if plan is None:
        return None
    over = {(stage.iteration, stage.stage) for stage in begun}
    ahead = [s for s in plan.stages if (s.iteration, s.stage) not in over]
    done = str(ended).startswith("done")
    return {
        **plan.as_json(),
        "head": list[Json](head_lines(plan)),
        "ahead": [] if done else [asdict(stage) for stage in ahead],
    }


def unless_finished(folder: Path, command: Command) -> State:
    """Send a command to the process that works on a run; return the state after it.

    Raises:
        NoDaemonError: if no process does, and whether that is because the run is done.
        ControlError: as `ask`.
    """
    try:
        return ask(folder, command)
    except NoDaemonError as error:
        _refuse_finished(folder, error)
        raise


def _refuse_finished(folder: Path, error: NoDaemonError) -> None:
    """Raise an error that explains a finished run, on which no process works."""
    with closing(RunReader(folder)) as run:
        found = read_state(run, "ended")
    if found.whole:
        raise NoDaemonError(
            f"run {folder.name} is finished ({found.ended}): it cannot be paused or stopped"
        ) from error


def stop_run(folder: Path, *, now: bool, say: Callable[[str], None]) -> int:
    """Stop the daemon of a run and wait until its process ends; return its id.

    With `now` requests in flight are abandoned, and a daemon that does not answer is killed.

    Raises:
        NoDaemonError: if no process works on the run.
        ControlError: if the daemon does not answer, or does not end.
    """
    try:
        daemon = _whom(folder)
    except NoDaemonError as error:
        _refuse_finished(folder, error)
        raise
    pid = daemon.pid
    try:
        ask(folder, Command(op="stop", now=now))
    except NoDaemonError:
        if not _lives(daemon):  # It ended in the meantime.
            return pid
        raise
    except ControlError:
        if not now:
            raise
        _kill(daemon)
    say(f"process {pid} is asked to stop" if not now else f"process {pid} is stopped at once")
    limit = time.monotonic() + KILLED_S
    while _lives(daemon):
        if now and time.monotonic() > limit:
            _kill(daemon)
        time.sleep(POLL_S)
    return pid


def _whom(folder: Path) -> psutil.Process:
    """Return the process that works on a run."""
    if not alive(folder):
        raise NoDaemonError(f"no daemon works on run {folder.name} on this machine")
    with closing(Reader(folder)) as reader:
        who = _last_start(reader)
    process = _process(who["pid"], who.get("since_boot"))
    if who["host"] != socket.gethostname() or process is None:
        raise ControlError(
            f"the process that works on run {folder.name} cannot be seen from here: it is "
            f"process {who['pid']} of {who['host']}"
        )
    return process


def _process(pid: int, started: float | None) -> psutil.Process | None:
    """Return the process of this id if it is the one that was started then."""
    try:
        process = psutil.Process(pid)
        same = started is not None and math.isclose(
            since_boot(process), started, rel_tol=0, abs_tol=CLOCK_TICK_S / 2
        )
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def _lives(process: psutil.Process) -> bool:
    """Whether a process runs: one that has ended and was not collected yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    """Kill a process and its descendants, in any session or group."""
    with suppress(psutil.NoSuchProcess):
        kill_all([process, *process.children(recursive=True)])


def _last_start(reader: Reader) -> dict[str, Any]:
    events = reader.events(START)
    return cast("dict[str, Any]", events[-1]) if events else {}
