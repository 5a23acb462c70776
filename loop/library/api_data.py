"""Functions that make rows outside the loop: derivations, imports, trainings, evaluations."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import polars as pl

from ...stores.frames import rows_frame
from ...stores.records import Evaluation
from ..daemon.child_run import Display, work_in_child
from ..daemon.evaluate_run import evaluate_run
from ..daemon.logs import LogReporter
from ..daemon.training_job import TrainingRequest, training_job
from ..lake.derive.derivation import Told
from ..lake.derive.derivation_request import DerivationRequest
from ..lake.derive.rebuild_pairs import rebuild_pairs
from ..lake.derive.reparse import reparse
from ..lake.imports.import_files import Import, import_files
from ..lake.query.runs import open_run
from .api_runs import Place, opened_in, run_of
from .read_only_run import ReadOnlyRun


def _of_a_run(run: Place | ReadOnlyRun, lake: Place | None) -> tuple[Path, str]:
    root, name = run_of(run, lake)
    return root, str(name)


def derive(run: Place | ReadOnlyRun, lake: Place | None, wanted: DerivationRequest) -> Told:
    """Make pairs or demonstrations from a run's stored rows under another rule."""
    root, name = _of_a_run(run, lake)
    with closing(open_run(root, name)) as reader:
        return rebuild_pairs(reader, wanted)


def parse_again(run: Place | ReadOnlyRun, lake: Place | None, name: str | None) -> Told:
    """Parse the stored critiques of a run again with the present parser."""
    root, asked = _of_a_run(run, lake)
    with closing(open_run(root, asked)) as reader:
        return reparse(reader, name)


def trained(
    run: Place | ReadOnlyRun, lake: Place | None, wanted: TrainingRequest, display: Display
) -> ReadOnlyRun:
    """Train from rows of a run in a child process, as a new run, and open that."""
    root, parent = _of_a_run(run, lake)
    job = training_job(root, parent, wanted)
    work_in_child(job, display=display)
    return opened_in(root, job.name)


def evaluated(
    run: Place | ReadOnlyRun,
    lake: Place | None,
    iteration: str | None,
    prompts: Place | Mapping[str, Place] | None,
) -> pl.DataFrame:
    """Return the numbers of a run's checkpoints; with prompts, measure one on them first."""
    root, name = _of_a_run(run, lake)
    if isinstance(prompts, Mapping):
        files = {called: Path(place) for called, place in prompts.items()}
    else:
        files = {} if prompts is None else {Path(prompts).stem: Path(prompts)}
    found = evaluate_run(root, name, iteration, files, LogReporter())
    return rows_frame(Evaluation, found)


def imported(job: Import) -> ReadOnlyRun:
    """Import files, and open the run that took their rows."""
    import_files(job)
    return opened_in(job.lake, job.name)
