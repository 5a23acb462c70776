"""A trainer process that starts before its job is known, so that its imports are done by then.

Importing TRL takes longer than a short training. A process needs only its environment and its log
to start; the job then comes as one line on its standard input. One process runs one job.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .launch import WAIT, WORKER


class WarmTrainer:
    """At most one waiting trainer process; it ends when this process does."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._started_for: tuple[Mapping[str, str], Path] | None = None

    @property
    def pid(self) -> int | None:
        """The waiting process; None if there is none."""
        return None if self._child is None else self._child.pid

    def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Start a process that waits for a job, unless one with this environment and log waits."""
        if self._is_waiting(environment, log):
            return
        self.close()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER, WAIT],
                stdin=subprocess.PIPE,
                bufsize=0,  # A buffer that cannot be written would raise again when it is closed.
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        self._started_for = (environment, log)

    def take(
        self, job: Path, environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes] | None:
        """Give the job to the waiting process and return it.

        None if no process waits, or the one that does has another environment or log.
        """
        if not self._is_waiting(environment, log):
            return None
        child, self._child = self._child, None
        assert child is not None  # noqa: S101 -- it is waiting
        assert child.stdin is not None  # noqa: S101 -- it was asked for
        try:
            child.stdin.write(f"{job}\n".encode())
        except BrokenPipeError:  # It has just ended; whoever asked starts a new one.
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
        there = self._child is not None and self._child.poll() is None
        return there and self._started_for == (environment, log)
