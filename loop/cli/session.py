"""A run in the foreground: its display, its log, its file modes, its end."""

import os
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...stores.address import in_lake
from ..data.text import visible

if TYPE_CHECKING:
    from ...configs.schema import RunConfig
    from ..daemon.job import Job
    from ..run.reporter import Reporter
    from ..run.stop import StopSignal


PRIVATE = 0o077


def stop_signal(config: "RunConfig", *, lift_pause: bool = False) -> "StopSignal":
    """Return the stop signal of the loop: set by a signal or by a command."""
    from ..run.stop import StopSignal

    return StopSignal(shutdown_timeout_s=config.shutdown_timeout_s, lift_pause=lift_pause)


def work_on(job: "Job", stop: "StopSignal", announce: int | None) -> None:
    """Work on a run, then print its result and the command to look at it."""
    from ...stores.installation import activation
    from ..daemon.logs import LOGS, RUN_LOG
    from ..lake.query.alarm_list import alarms
    from ..lake.query.runs import open_run
    from ..run.terminal import say
    from .result_block import result_lines
    from .status_text import published_line, warnings_line

    name = f"{job.name}{in_lake(job.lake)}"
    turn(job, stop, announce)
    with closing(open_run(job.lake, job.name)) as run:
        for line in result_lines(run):
            typer.echo(visible(line))
        say(warnings_line(alarms(run), name))
        say(f"log     {run.folder / LOGS / RUN_LOG}")
        published = published_line(run, in_lake(job.lake))
    if published is not None:
        say(f"model   {published}")
    first = activation()
    before = "" if first is None else f" (first, in this shell: `{first}`)"
    say(f"next    `lpfloop report {name} --open`{before}")


def turn(job: "Job", stop: "StopSignal | None" = None, announce: int | None = None) -> None:
    """Run the loop, or critique a job's answers, with a display and a log.

    Without a stop signal it lifts a pause: the same command continues a series of runs.
    """
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.child_run import settle
    from ..daemon.critique_run import critique_answers
    from ..daemon.logs import LogReporter, Tee, bound_logs, logging_to
    from ..daemon.loop import run_loop
    from ..daemon.planning import announce_plan

    stop = stop or stop_signal(job.config, lift_pause=True)
    hide_environment()
    hide_secrets_of(job.config)
    where = in_lake(job.lake)
    with ExitStack() as ending:
        ending.enter_context(_private_files())
        reporter = Tee([ending.enter_context(reporting()), LogReporter()])

        def on_open(folder: Path) -> None:
            bound_logs(folder)
            ending.enter_context(logging_to(folder))
            if announce is not None:
                settle(folder, announce)
            if stop.paused:
                reporter.note(
                    f"run {job.name} is paused; `lpfloop resume {job.name}{where}` continues it"
                )

        ending.enter_context(stop.on_signals())
        if job.answers is None:
            run_loop(job, reporter, stop, on_open=on_open, on_begin=announce_plan)
        else:
            critique_answers(job, reporter, stop, on_open=on_open)


@contextmanager
def reporting() -> "Generator[Reporter]":
    """Show progress on stderr: live on a terminal, in plain lines elsewhere."""
    from rich.console import Console

    from .display import LiveReporter, PlainReporter

    console = Console(stderr=True)
    reporter = LiveReporter(console) if console.is_terminal else PlainReporter(console)
    try:
        yield reporter
    finally:
        reporter.close()


@contextmanager
def _private_files() -> Generator[None]:
    """Make new files of the loop and its children readable by the user alone."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)
