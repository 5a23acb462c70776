"""Runs that a child process works on: for a Python program, or as a daemon.

A Python program's child owns the state that the loop needs exclusively: the signals, the file
modes, the secrets of the log. Its job comes by its standard input, which stays open: if the program
is gone, the child stops cleanly. How it ended comes by a separate pipe.

A daemon starts in a new session, with its output in `logs/daemon.log`. It writes to an unnamed file
until it holds the run's lock; its output until then, and its exit code, are reported by the
starter. It announces its process id over a pipe, since the process that was started may be a
launcher.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from pydantic import SecretStr, TypeAdapter

from ...configs.load import Override, resolve_config, settable, stored_config
from ...configs.schema import ConfigError, RunConfig
from ...stores.address import bucket_of
from ..lake.imports.answers_file import AnswersFile
from ..run.stop import NothingToTrainOn, Regressed, Stopped
from .derived_run import Given
from .job import Job
from .logs import DAEMON_LOG, LOGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The result of a start: `code` is None if the daemon holds the run, else its exit code."""

    pid: int
    code: int | None
    talk: str


def start(arguments: Sequence[str]) -> Started:
    """Start `lpfloop ARGUMENTS` as a daemon; return when it holds the run, or has ended."""
    reading, writing = os.pipe()
    with open(reading, "rb") as announced, tempfile.TemporaryFile() as talk:  # noqa: PTH123
        try:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "lpfloop", *arguments, "--announce", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=talk,
                stderr=talk,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            announcement = announced.read()
        except BaseException:
            daemon.terminate()
            raise
        code = None if announcement else daemon.wait()
        talk.seek(0)
        output = talk.read().decode(errors="replace").strip()
    # The daemon outlives its parent on purpose, so init must reap it.
    daemon.returncode = 0 if code is None else code
    return Started(pid=int(announcement or daemon.pid), code=code, talk=output)


def settle(folder: Path, announce: int) -> None:
    """Move this daemon's output into the run's folder; signal the starter that it has the lock."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    log = os.open(folder / LOGS / DAEMON_LOG, flags, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)
    os.write(announce, str(os.getpid()).encode())
    os.close(announce)


CHILD = "lpfloop.loop.cli.child"
POLL_S = 0.05
LAST_LINES = 20
"""How many of the last lines of a failed child are reported."""

Display = Literal["auto", "plain", "none"]
"""How progress is shown: live on a terminal and in lines elsewhere, always in lines, not at all."""


class FaultError(RuntimeError):
    """The process that worked on a run failed; the message names the cause."""

    code = "LPF-001"


ENDS: Mapping[int, type[FaultError | ConfigError | Stopped | NothingToTrainOn | Regressed]] = {
    1: FaultError,
    2: ConfigError,
    3: Stopped,
    4: NothingToTrainOn,
    5: Regressed,
}
"""The exception for each exit code of the command line."""


def work_in_child(job: Job, *, lift_pause: bool = False, display: Display = "auto") -> None:
    """Work on a job to its end in a child process, from any thread.

    An interrupt of the main thread (Ctrl-C, or a notebook's stop button) stops it cleanly, and a
    second one at once. Either is raised again when the child has ended.

    Raises:
        ConfigError: if the run cannot be started or resumed.
        FaultError: if a model, a training or a file failed.
        Stopped: if the run was stopped by somebody else, or a budget ended.
        NothingToTrainOn: if an iteration has too little to train on.
        Regressed: if the policy got worse and the run is to stop there, or an alarm stopped it.
    """
    live = display == "auto" and _on_terminal()
    last = deque[str](maxlen=LAST_LINES)

    def show(line: str) -> None:
        last.append(line)
        if display != "none":
            print(line, end="", file=sys.stderr, flush=True)  # noqa: T201 -- progress, as it comes

    order = as_order(job, lift_pause=lift_pause).encode()
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as ends:  # noqa: PTH123 -- a descriptor
        try:
            # In a new session, so that a terminal's Ctrl-C reaches it but once.
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", CHILD, str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if live else subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        with child:
            try:
                interrupted = _follow(child, order, show)
            except BaseException:
                if child.stdin is not None:
                    child.stdin.close()  # The child sees that its parent is gone, and stops.
                raise
        ended = ends.read()
    _raise_end(job, child.returncode, ended, "".join(last), interrupted=interrupted)


def _on_terminal() -> bool:
    """Whether this process's stderr is shown on a terminal directly."""
    return sys.stderr is sys.__stderr__ and sys.__stderr__ is not None and sys.stderr.isatty()


def _follow(child: subprocess.Popen[str], order: bytes, show: Callable[[str], None]) -> bool:
    """Give the child its order and show its output to the end; return whether it was interrupted.

    Another thread reads: the system may hand it the signal, and then no reading is interrupted.
    """
    lines, interrupted = SimpleQueue[str](), False
    reader = threading.Thread(target=_read, args=(child, order, lines), daemon=True)
    reader.start()
    while True:
        try:
            over = not reader.is_alive() and child.poll() is not None
            while not lines.empty():
                show(lines.get())
            if over:
                return interrupted
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            interrupted = True
            child.send_signal(signal.SIGINT)


def _read(child: subprocess.Popen[str], order: bytes, lines: SimpleQueue[str]) -> None:
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            while order:
                order = order[os.write(child.stdin.fileno(), order) :]
    for line in child.stderr or ():
        lines.put(line)


def _raise_end(job: Job, code: int, ended: str, last: str, *, interrupted: bool) -> None:
    """Raise the child's outcome, unless it did all its work."""
    end: dict[str, Any] = json.loads(ended) if ended else {}
    kind = ENDS.get(end.get("exit", code), FaultError)
    if interrupted and (kind is Stopped or code < 0 or code > 128):  # noqa: PLR2004 -- by a signal
        raise KeyboardInterrupt(
            f"run {job.name} was stopped; lpfloop.resume({job.name!r}) continues it"
        )
    if end:
        error = kind(end["said"])
        error.code = end["code"]
        raise error
    if code:
        raise FaultError(
            f"the process that worked on run {job.name} ended with {code}: {last.strip()[-2000:]}"
        )


def as_order(job: Job, *, lift_pause: bool) -> str:
    """Return a job as the child takes it: one line, which includes secret keys."""
    order = json.dumps(
        {
            "config": resolve_config(job.config),
            "secrets": {override.path: override.value for override in secrets_of(job.config)},
            "lake": bucket_of(job.lake) or str(job.lake),
            "name": job.name,
            "fork": job.fork,
            "given": None if job.given is None else asdict(job.given),
            "answers": None if job.answers is None else asdict(job.answers),
            "retry_unscored": job.retry_unscored,
            "lift_pause": lift_pause,
        },
        default=str,  # the path of answers
    )
    return f"{order}\n"


def job_of(order: Mapping[str, Any], lake: Path, environment: Mapping[str, str]) -> Job:
    """Return the job of an order."""
    keys = [Override(source="api_key", path=p, value=v) for p, v in order["secrets"].items()]
    return Job(
        config=stored_config(order["config"], keys, environment),
        lake=lake,
        name=order["name"],
        fork=order["fork"],
        given=TypeAdapter(Given | None).validate_python(order["given"]),
        answers=TypeAdapter(AnswersFile | None).validate_python(order["answers"]),
        retry_unscored=order["retry_unscored"],
    )


def secrets_of(config: RunConfig) -> list[Override]:
    """Return the keys that a configuration holds, by their places."""
    found = list[Override]()
    for path in (field.path for field in settable() if field.secret):
        key: object = attrgetter(path)(config)
        if isinstance(key, SecretStr):
            found.append(Override(source="api_key", path=path, value=key.get_secret_value()))
    return found
