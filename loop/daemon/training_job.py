"""The job of training a new run's policy from a derived table of another."""

import json
import os
from contextlib import closing
from pathlib import Path

from ...configs.load import stored_config
from ..lake.imports import require_loop
from ..lake.query.runs import open_run
from .derived_run import given_by
from .job import Job
from .own_files import require_own_files


def training_job(
    lake: Path, name: str, pairs: str, *, child: str | None = None, iteration: int | None = None
) -> Job:
    """Return the job that trains from the derived table `pairs` of a run.

    Raises:
        ConfigError: if the run has no loop, or a file of the user's is not as it was.
        DerivedError: if the table is not there, or nothing can be trained from it.
        NothingToTrainOn: if it has fewer rows than `training.min_pairs`.
        DamagedError: if it was altered.
    """
    with closing(open_run(lake, name)) as run:
        require_loop(run.journal)
        require_own_files(run.journal)
        stored = json.loads(run.journal.meta("config") or "{}")
        config = stored_config(stored, (), os.environ)
        given = given_by(run, pairs, iteration, config)
    config = config.model_copy(update={"iterations": given.iteration})
    return Job(config=config, lake=lake, name=child or f"{name}-{pairs}", fork=name, given=given)
