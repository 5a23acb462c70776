"""The child process of a training: start it, watch it, kill it and all processes that it started.

The child runs in a separate session, which is killed as a whole. Its standard input is a pipe that
its parent holds open: the workers end when it is closed, so they outlive neither a parent that was
killed nor a launcher that died before them.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from . import launch
from .faults import halted_error, place
from .job import TrainingError, TrainJob
from .shm_weights import discard_memory
from .work_folder import (
    LOCK,
    POLL_S,
    PULSE,
    STEPS,
    Orders,
    TrainerProgress,
    new_lines,
    parse_row,
    progress_of,
    write_orders,
)

ENDING_S = 60.0
"""Seconds in which the processes of a training must have ended, on all machines."""
STARTING_S = 600.0
"""Seconds to wait for the nodes of a training to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The parent's callbacks and limits for a child.

    `on_progress` is called for every step, `is_to_end` several times a second, `on_answers` with
    each step whose answers the parent is to score, for as long as that takes; an exception from any
    of them ends the child. After `hang_timeout_s` seconds without a sign of life the child is
    killed. It makes a checkpoint every `checkpoint_s` seconds. `warm` may hold a process that waits
    for a job.
    """

    log: Path
    hang_timeout_s: float
    checkpoint_s: float
    is_to_end: Callable[[], bool]
    on_progress: Callable[[TrainerProgress], None] | None = None
    on_answers: Callable[[int], None] | None = None
    warm: "WarmTrainer | None" = None


def run_worker(job: TrainJob, watch: Watch) -> tuple[int, bool]:
    """Run the child to its end; return its exit code, and whether its training began.

    Raises:
        TrainingError: of kind `hung`, if the child was killed because it gave no sign of life; of
            kind `halted`, if it was to end before its training began.
    """
    steps = job.folder(STEPS)
    offset = steps.stat().st_size if steps.exists() else 0
    last_sign, silent_s = None, 0.0
    began = ending = False
    with start_child(job, watch) as child:
        while True:
            code = child.poll()
            lines, offset = new_lines(steps, offset)
            for row in filter(None, map(parse_row, lines)):
                began = True
                if watch.on_progress and row["event"] == "step":
                    watch.on_progress(progress_of(row))
                if watch.on_answers and row["event"] == "answers":
                    watch.on_answers(row["step"])
            if code is not None:
                return code, began
            if not ending and watch.is_to_end():
                if not began:
                    raise halted_error(job)
                write_orders(job.output, Orders(end=True))
                ending = True
            sign = offset, _modified_ns(job.folder(PULSE))
            # Polls are counted, not the clock: time that this process was suspended does not count.
            silent_s = silent_s + POLL_S if sign == last_sign else 0.0
            last_sign = sign
            if silent_s >= watch.hang_timeout_s:
                raise TrainingError(
                    "hung",
                    f"the trainer made no step for {silent_s:.0f} s {place(job)}: it hangs; log: "
                    f"{watch.log}",
                )
            sleep(POLL_S)


def _modified_ns(path: Path) -> int:
    """Return when a file was last touched, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def start_child(job: TrainJob, watch: Watch) -> Generator[subprocess.Popen[bytes]]:
    """Start the child; kill it and all its processes on exit."""
    argv, environment = launch.argv(job), launch.environment(job)
    child = None
    if watch.warm is not None and argv == launch.single_argv(job):
        child = watch.warm.take(job.folder("job.json"), environment, watch.log)
    if child is None:
        with watch.log.open("ab") as out:
            child = start(argv, environment, out)
    with kill_on_exit(child, retry_timeout_s=0.0 if job.fit.nodes == 1 else ENDING_S):
        yield child


def start(
    argv: Sequence[str], environment: Mapping[str, str], out: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start a command in a new session, with a pipe to its standard input."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        bufsize=0,  # A buffer that cannot be written would raise again when it is closed.
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


@contextmanager
def kill_on_exit(
    child: subprocess.Popen[bytes], *, retry_timeout_s: float = 0.0
) -> Generator[None]:
    """Kill a child's whole session on exit.

    A command with processes on other machines first gets `retry_timeout_s` to end them, and as long
    again after SIGTERM.
    """
    assert child.stdin is not None  # noqa: S101 -- `start` asked for it
    try:
        yield
    finally:
        if retry_timeout_s:
            for ask in (child.stdin.close, child.terminate):
                ask()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(retry_timeout_s)
                    break
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.stdin.close()
        child.wait()


@contextmanager
def alone(job: TrainJob, *, retry_timeout_s: float) -> Generator[None]:
    """Lock the work folder, which the child of a killed parent may keep locked for a moment.

    The kernel releases the lock however its holder dies.

    Raises:
        TrainingError: of kind `hung`, if another trainer keeps it longer than `retry_timeout_s`.
    """
    deadline = monotonic() + retry_timeout_s
    with job.folder(LOCK).open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= deadline:
                    message = f"another trainer still works in {job.output}; end it, then resume"
                    raise TrainingError("hung", message) from None
            sleep(POLL_S)
        yield


def discard_memory_of(job: TrainJob) -> None:
    """Free the shared memory of a child that has ended."""
    with suppress(TrainingError), alone(job, retry_timeout_s=ENDING_S):
        discard_memory(job.output)


class WarmTrainer:
    """At most one trainer process that waits for its job; it ends when this process does.

    Importing TRL takes longer than a short training, and needs only the environment and the log.
    The job comes as one line on the standard input. One process runs one job.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._started_for: tuple[Mapping[str, str], Path] | None = None

    @property
    def pid(self) -> int | None:
        """The waiting process, or None."""
        return None if self._child is None else self._child.pid

    def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Start a process that waits for a job, unless one with this environment and log waits."""
        if self._is_waiting(environment, log):
            return
        self.close()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            argv = [sys.executable, "-P", "-m", launch.WORKER, launch.WAIT]
            self._child = start(argv, environment, out)
        self._started_for = (environment, log)

    def take(
        self, job: Path, environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes] | None:
        """Give the job to the waiting process and return it.

        None if no process with this environment and log waits.
        """
        if not self._is_waiting(environment, log):
            return None
        child, self._child = self._child, None
        assert child is not None  # noqa: S101 -- it is waiting
        assert child.stdin is not None  # noqa: S101 -- `start` asked for it
        try:
            child.stdin.write(f"{job}\n".encode())
        except BrokenPipeError:  # It has just ended; the caller starts a new one.
            child.stdin.close()
            child.wait()
            return None
        return child

    def close(self) -> None:
        """End the waiting process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _is_waiting(self, environment: Mapping[str, str], log: Path) -> bool:
        waits = self._child is not None and self._child.poll() is None
        return waits and self._started_for == (environment, log)
