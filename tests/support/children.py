"""Training a child run from a derived table, as processes of the crash tests do it."""

from pathlib import Path

from crashing import RUN, Silent

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.derived_run import given_by
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import run_folder

CHILD = "child"


def train_child(lake: Path, *, config: RunConfig, name: str, iteration: int | None = None) -> None:
    """Train a child from derived rows, or go on with the one that is there."""
    run = open_run(lake, RUN)
    given = given_by(run, name, iteration, config)
    run.close()
    wanted = config.model_copy(update={"iterations": given.iteration})
    job = Job(config=wanted, lake=lake, name=CHILD, fork=RUN, given=given)
    if (run_folder(lake, CHILD) / JOURNAL).exists():
        job = Job(config=wanted, lake=lake, name=CHILD)
    run_loop(job, Silent(), StopSignal())
