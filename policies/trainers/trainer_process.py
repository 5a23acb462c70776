"""The child process of a training: how it is launched, followed, and ended when it hangs."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from . import launch
from .memory_folders import discard_abandoned
from .trainer_faults import TrainingError, halted, hung
from .trainer_job import TrainJob
from .trainer_orders import Orders, write_orders
from .trainer_steps import STEPS, TrainerProgress, new_lines, parse_row, progress_of
from .warm_trainer import WarmTrainer

POLL_S = 0.2
LONGEST_LOOK_S = 1.0
"""The most that one look adds to a silence: time that the parent was suspended must not count."""

PULSE = "alive"
"""The file that the child touches while it computes, also between steps and before the first."""

LOCK = "trainer.lock"
ENDING_S = 10.0
"""Seconds in which a child that was killed must have ended."""
NODES_ENDING_S = 80.0
"""Seconds that a command gets to end its processes on other machines, before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a child is monitored.

    `on_progress` is called for every step, `is_to_end` several times a second, `on_answers` with
    each step whose answers somebody else is to judge, which may take as long as it takes; an
    exception from any of them ends the child. After `stall_s` seconds without a sign of life the
    child is killed. The child makes a checkpoint every `checkpoint_s` seconds. `warm` may hold a
    process that waits for a job.
    """

    log: Path
    stall_s: float
    checkpoint_s: float
    is_to_end: Callable[[], bool]
    on_progress: Callable[[TrainerProgress], None] | None = None
    on_answers: Callable[[int], None] | None = None
    warm: WarmTrainer | None = None


@dataclass(slots=True)
class Silence:
    """How long, in seconds, a sign of life has stayed the same."""

    looked: float
    sign: object = None
    since_s: float = 0.0

    def look(self, sign: object, now: float) -> float:
        """Note the sign of life seen at `now`; return the silence in seconds."""
        passed = min(now - self.looked, LONGEST_LOOK_S)
        self.since_s = self.since_s + passed if sign == self.sign else 0.0
        self.sign, self.looked = sign, now
        return self.since_s


def run_worker(job: TrainJob, watch: Watch) -> tuple[int, bool]:
    """Run the child to its end; return its exit code, and whether its training began.

    Raises:
        TrainingError: of kind `hung`, when the child was killed for giving no sign of life; of kind
            `halted`, when it was to end before its training began.
    """
    steps = job.folder(STEPS)
    offset = steps.stat().st_size if steps.exists() else 0
    silence = Silence(monotonic())
    began = told = False
    with launched(job, watch) as child:
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
            if not told and watch.is_to_end():
                if not began:
                    raise halted(job)
                write_orders(job.output, Orders(end=True))
                told = True
            silent_s = silence.look((offset, modified(job.folder(PULSE))), monotonic())
            if silent_s >= watch.stall_s:
                raise hung(job, silent_s, watch.log)
            sleep(POLL_S)


def modified(path: Path) -> int:
    """Return when a file was last touched, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def launched(job: TrainJob, watch: Watch) -> Generator[subprocess.Popen[bytes]]:
    """Start the child, and end it and all its processes on the way out."""
    argv, environment = launch.argv(job), launch.environment(job)
    if watch.warm is not None and argv == launch.single_argv(job):
        ready = watch.warm.take(job.folder("job.json"), environment, watch.log)
        if ready is not None:
            with ended_with_its_session(ready):
                yield ready
            return
    patience_s = 0.0 if job.fit.launcher == "local" else NODES_ENDING_S
    with watch.log.open("ab") as out, running(argv, environment, out, patience_s) as child:
        yield child


@contextmanager
def running(
    argv: Sequence[str], environment: Mapping[str, str], out: IO[bytes], patience_s: float
) -> Generator[subprocess.Popen[bytes]]:
    """Run a command in a session of its own; kill its whole session on the way out.

    Its standard input is a pipe that this process holds open: the workers end when it is closed, so
    they outlive neither a parent that was killed nor a launcher that died before them. A command
    with processes on other machines gets `patience_s` to end them.
    """
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )
    with ended_with_its_session(child, patience_s=patience_s):
        yield child


@contextmanager
def ended_with_its_session(
    child: subprocess.Popen[bytes], *, patience_s: float = 0.0
) -> Generator[None]:
    """Kill a child's whole session on the way out, once it had `patience_s` seconds to end it."""
    assert child.stdin is not None  # noqa: S101 -- it was asked for
    try:
        yield
    finally:
        if patience_s and child.poll() is None:
            for end in (child.stdin.close, child.terminate):
                end()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(patience_s / 2)
                    break
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.stdin.close()
        child.wait()


@contextmanager
def alone(job: TrainJob, *, patience_s: float) -> Generator[None]:
    """Lock the work folder, which the child of a killed parent may still hold for a moment.

    The kernel releases the lock however its holder dies.

    Raises:
        TrainingError: of kind `hung`, when another trainer keeps it for longer than `patience_s`.
    """
    deadline = monotonic() + patience_s
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
    """Give back this machine's memory that a child held, once it has ended."""
    with suppress(TrainingError), alone(job, patience_s=ENDING_S):
        discard_abandoned()
