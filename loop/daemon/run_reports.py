"""Writes a run's report after each iteration, from the stored rows, in a separate process.

A report never delays a run: it is written in spare time, a new one is not begun before the last is
finished, and an error is reported once.
"""

import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec

import psutil

from ...stores.installation import pip_install
from ..run.reporter import Reporter
from ..run.run import Run
from ..run.stop import Stopped
from .job import Job

NICENESS = 10
LAST_S = 300.0
"""Seconds that the last report of a run has."""
OFF = "`--set report.each_iteration=false` writes none"


@contextmanager
def run_reports(job: Job, reporter: Reporter) -> "Generator[RunReports]":
    """Yield the writer of a run's reports; the last one is written when the run has ended.

    A stop of the run does not wait for it.
    """
    reports = RunReports(job=job, reporter=reporter)
    try:
        yield reports
    except Stopped:
        reports.drop()
        raise
    finally:
        reports.finish()


@dataclass(slots=True, kw_only=True)
class RunReports:
    """The reports of a run that a process works on."""

    job: Job
    reporter: Reporter
    _at_work: "subprocess.Popen[str] | None" = None
    _has_warned: bool = False
    _due: bool = False

    def after(self, run: Run, iteration: int) -> None:
        """Begin the report up to this iteration, unless the previous one is still being written.

        `finish` writes the one of the last iteration.
        """
        del run
        if not self.job.config.report.each_iteration:
            return
        if find_spec("matplotlib") is None:
            install = pip_install("matplotlib")
            self._warn(f"no report is written: it needs Matplotlib: `{install}`; {OFF}")
            return
        self._due = True
        idle = self._at_work is None or self._at_work.poll() is not None
        if idle and iteration < self.job.config.iterations:
            self._collect()
            self._begin()

    def drop(self) -> None:
        """Stop writing the present report; the previous one stays."""
        self._due = False
        if self._at_work is not None:
            self._at_work.kill()
            self._at_work.communicate()
            self._at_work = None

    def finish(self) -> None:
        """Write the last report, of the run as it has ended, and wait for it."""
        if self._due:
            self.drop()
            self._begin()
            self._collect()

    def _begin(self) -> None:
        words = ["-m", "lpfloop", "report", self.job.name, "--lake", str(self.job.lake)]
        self._at_work = subprocess.Popen(
            [sys.executable, "-P", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with suppress(psutil.Error):
            psutil.Process(self._at_work.pid).nice(NICENESS)

    def _collect(self) -> None:
        """Wait for the process, and report its error if it failed."""
        if self._at_work is None:
            return
        process, self._at_work = self._at_work, None
        try:
            _, output = process.communicate(timeout=LAST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self._note_failure(f"it took over {LAST_S:g} s")
            return
        if process.returncode:
            self._note_failure((output.strip() or "no reason").splitlines()[-1])

    def _note_failure(self, why: str) -> None:
        again = shlex.join(["lpfloop", "report", self.job.name, "--lake", str(self.job.lake)])
        self._warn(f"the report could not be written ({why}); `{again}` writes it, {OFF}")

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self.reporter.note(text, "warning", code="W-REPORT")
