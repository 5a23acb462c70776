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
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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


@dataclass(slots=True)
class _ComparisonWorker:
    """One process, and the comparison it is at (None: idle) with its deadline."""

    process: subprocess.Popen[str]
    job: int | None
    deadline: float
    ready: bool

    @property
    def output(self) -> IO[str]:
        return cast("IO[str]", self.process.stdout)


class MathPool:
    """Compares pairs of final answers; close it after use."""

    def __init__(self, workers: int, limit_s: float) -> None:
        """Prepare a pool of `workers` processes; a comparison has `limit_s` of processor time."""
        self._size = workers
        self._limit_s = limit_s
        self._workers: list[_ComparisonWorker] = []
        self._lost_at_start = 0

    @property
    def started(self) -> bool:
        """Whether any worker runs."""
        return bool(self._workers)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            _end(worker)
        self._workers.clear()
        self._lost_at_start = 0

    def compare(self, jobs: Sequence[tuple[Final, Final]]) -> list[str]:
        """Return for each (gold, answer) `equal`, `different`, `unreadable`, `failed` or `timeout`.

        Raises:
            MathVerifyMissingError: if a worker cannot start.
        """
        outcomes: dict[int, str] = {}
        try:
            self._compare(jobs, outcomes)
        except BaseException:
            # The workers are busy with comparisons whose results are not needed any more.
            self.close()
            raise
        return [outcomes[number] for number in range(len(jobs))]

    def _compare(self, jobs: Sequence[tuple[Final, Final]], outcomes: dict[int, str]) -> None:
        waiting = deque(range(len(jobs)))
        while len(outcomes) < len(jobs):
            while len(self._workers) < min(self._size, len(jobs) - len(outcomes)):
                self._workers.append(_start())
            for worker in self._workers:
                if worker.ready and worker.job is None and waiting:
                    number = waiting.popleft()
                    if not self._give(worker, number, jobs[number]):
                        waiting.appendleft(number)
            self._collect(outcomes)

    def _give(self, worker: _ComparisonWorker, number: int, job: tuple[Final, Final]) -> bool:
        """Send a job to an idle worker; return False if the worker has died meanwhile."""
        gold, answer = job
        request = {"gold": asdict(gold), "answer": asdict(answer), "limit_s": self._limit_s}
        stdin = cast("IO[str]", worker.process.stdin)
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        except BrokenPipeError:
            return False
        worker.job, worker.deadline = number, time.monotonic() + self._limit_s * PATIENCE
        return True

    def _collect(self, outcomes: dict[int, str]) -> None:
        """Wait for the next result or deadline, and replace the workers that are lost."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            nearest = min(worker.deadline for worker in self._workers)
            events = selector.select(min(START_S, max(0.0, nearest - time.monotonic())))
        for key, _ in events:
            self._receive(cast("_ComparisonWorker", key.data), outcomes)
        now = time.monotonic()
        for worker in [w for w in self._workers if w.deadline <= now]:
            self._lose(worker, "timeout", outcomes)

    def _receive(self, worker: _ComparisonWorker, outcomes: dict[int, str]) -> None:
        line = worker.output.readline()
        if not line:
            ended = worker.process.wait()
            self._lose(worker, "timeout" if ended == -signal.SIGPROF else "failed", outcomes)
            return
        if worker.job is not None:
            outcomes[worker.job] = json.loads(line)
        worker.job, worker.deadline, worker.ready = None, float("inf"), True
        self._lost_at_start = 0

    def _lose(self, worker: _ComparisonWorker, outcome: str, outcomes: dict[int, str]) -> None:
        """End a worker that hangs or has died; its current comparison gets `outcome`."""
        _end(worker)
        self._workers.remove(worker)
        if not worker.ready:
            self._lost_at_start += 1
            if self._lost_at_start >= STARTS:
                raise MathVerifyMissingError(
                    f"math-verify cannot be started; install it with: {pip_install('math-verify')}"
                )
        if worker.job is not None:
            outcomes[worker.job] = outcome


def _start() -> _ComparisonWorker:
    # -P keeps this folder's module names off the worker's path. A separate session keeps Ctrl-C,
    # which goes to the whole process group, from ending comparisons that the daemon still drains.
    process = subprocess.Popen(
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
    return _ComparisonWorker(process, job=None, deadline=time.monotonic() + START_S, ready=False)


def _end(worker: _ComparisonWorker) -> None:
    worker.process.kill()
    # Closing the pipes by hand: `communicate` would wait for the rest of the output.
    for pipe in (worker.process.stdin, worker.process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
    worker.process.wait()
