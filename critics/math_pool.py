"""A pool of processes that compare final answers by math-verify, each comparison under a deadline.

Symbolic comparison can hang or exhaust memory, and math-verify's own time limit works in a main
thread only. So every comparison runs in a worker process that the kernel ends when the comparison
has used its processor time: the worker is replaced, and the comparison has the outcome `timeout`.
The limit is processor time, since verdicts must not depend on the machine's load. Workers start
with the first comparison.

The workers of library pools (concurrent.futures, pebble) would inherit the caller's environment
with its keys, run the caller's `__main__` again, and share one queue, which a killed worker breaks.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, cast

from ..stores.installation import pip_install
from .math_answers import Final

WORKER = Path(__file__).with_name("math_worker.py")
START_S = 60.0
"""How long a worker may take to start (importing sympy on a busy machine)."""
STARTS = 3
"""How many workers may be lost in a row while they start: one may be killed, for its memory."""
PATIENCE = 30
"""A comparison that hangs without using the processor ends after this multiple of its limit."""
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
"""The environment that workers inherit: no key or token of the caller."""


class MathVerifyMissingError(RuntimeError):
    """No worker could start: math-verify is not installed, or does not import."""


class MathPool:
    """Compares pairs of final answers; close it after use."""

    def __init__(self, workers: int, limit_s: float) -> None:
        """Prepare a pool of `workers` processes; a comparison has `limit_s` of processor time."""
        self._size = workers
        self._limit_s = limit_s
        self._workers = set[_Worker]()
        self._idle = list[_Worker]()

    @property
    def started(self) -> bool:
        """Whether any worker runs."""
        return bool(self._workers)

    def close(self) -> None:
        """End all workers."""
        self._idle.clear()
        for worker in list(self._workers):
            self._end(worker)

    def compare(
        self,
        jobs: Sequence[tuple[Final, Final]],
        on_outcome: Callable[[str], None] = lambda _: None,
    ) -> list[str]:
        """Return for each (gold, answer) `equal`, `different`, `unreadable`, `failed` or `timeout`.

        `on_outcome` is called with each, in order; an exception from it ends the other comparisons.

        Raises:
            MathVerifyMissingError: if a worker cannot start.
        """
        with ThreadPoolExecutor(self._size) as threads:
            try:
                outcomes = list[str]()
                for outcome in threads.map(self._outcome, jobs):
                    on_outcome(outcome)
                    outcomes.append(outcome)
            except BaseException:
                # The workers are busy with comparisons whose results are not needed any more.
                for worker in list(self._workers):
                    worker.process.kill()
                threads.shutdown(cancel_futures=True)
                self.close()
                raise
        return outcomes

    def _outcome(self, job: tuple[Final, Final]) -> str:
        """Return the outcome of a comparison; a worker that hangs or dies is lost."""
        gold, answer = job
        request = {"gold": asdict(gold), "answer": asdict(answer), "limit_s": self._limit_s}
        worker = self._take()
        while not worker.send(json.dumps(request)):
            self._end(worker)
            worker = self._take()
        line = worker.read_line(self._limit_s * PATIENCE)
        if line:
            self._idle.append(worker)
            return json.loads(line)
        timed_out = line is None or worker.process.wait() == -signal.SIGPROF
        self._end(worker)
        return "timeout" if timed_out else "failed"

    def _take(self) -> "_Worker":
        """Return an idle worker, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        for _ in range(STARTS):
            worker = _Worker()
            self._workers.add(worker)
            if worker.read_line(START_S):
                return worker
            self._end(worker)
        raise MathVerifyMissingError(
            f"math-verify cannot be started; install it with: {pip_install('math-verify')}"
        )

    def _end(self, worker: "_Worker") -> None:
        worker.end()
        self._workers.discard(worker)


class _Worker:
    """One process, which answers each line with one."""

    def __init__(self) -> None:
        # -P keeps this folder's module names off the worker's path. A separate session keeps
        # Ctrl-C, which goes to the whole process group, from ending comparisons that the daemon
        # still drains.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="surrogatepass",
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )
        self._input = cast("IO[str]", self.process.stdin)
        self._output = cast("IO[str]", self.process.stdout)

    def send(self, line: str) -> bool:
        """Send a line; return False if the process has died meanwhile."""
        try:
            self._input.write(f"{line}\n")
            self._input.flush()
        except BrokenPipeError:
            return False
        return True

    def read_line(self, seconds: float) -> str | None:
        """Return the next line; an empty text if the process has died, None if it takes longer."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            return self._output.readline() if selector.select(seconds) else None

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        # Closing the pipes by hand: `communicate` would wait for the rest of the output.
        for pipe in (self._input, self._output):
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        self.process.wait()
