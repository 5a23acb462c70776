"""Starting the loop as a daemon: in a new session, its output in `logs/daemon.log`.

The child writes to an unnamed file until it holds the run's lock; its output until then, and its
exit code, are reported by the starter. It announces its process id over a pipe, since the process
that was started may be a launcher.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
