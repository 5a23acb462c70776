"""`run`, `resume`, `takeover` and `train` for Python, as the commands of these names."""

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ...configs.load import Override, overrides_of, resolve_config
from ...configs.schema import RunConfig
from ...stores.lake import RunReader
from ..daemon.child_run import Display, secrets_of, work_in_child
from ..daemon.job import Job
from ..daemon.resuming import resumption, takeover
from ..daemon.run_request import RunOptions
from ..daemon.training_job import TrainingRequest, training_job
from ..lake.query.runs import open_run
from ..run.terminal import say
from .read_only_run import ReadOnlyRun, lake_at

Configuration = str | Path | Mapping[str, object] | RunConfig
"""A preset's name, a YAML file, the content of such a file, or a whole configuration."""
Place = str | Path
"""A folder, or `s3://BUCKET/PREFIX`."""


def run_of(run: Place | ReadOnlyRun | None, lake: Place | None) -> tuple[Path, str | None]:
    """Return the lake and the name of a run that may be open already."""
    if isinstance(run, ReadOnlyRun):
        return run.lake, run.name
    return lake_at(lake), None if run is None else str(run)


@contextmanager
def reading(run: Place | ReadOnlyRun, lake: Place | None) -> Generator[RunReader]:
    """Open a run that a function works on.

    Raises:
        NoSuchRunError: if the run does not exist.
    """
    with closing(open_run(*run_of(run, lake))) as reader:
        yield reader


def train_run(
    run: Place | ReadOnlyRun, lake: Place | None, request: TrainingRequest, display: Display
) -> ReadOnlyRun:
    """Train from rows of a run in a child process, as a new run, and open that."""
    root, parent = run_of(run, lake)
    job = training_job(root, str(parent), request)
    work_in_child(job, display=display)
    return ReadOnlyRun(open_run(root, job.name))


def run_options(
    config: Configuration | None, settings: Mapping[str, object] | None, **options: Any
) -> RunOptions:
    """Return the options of a run; Python objects of the configuration become overrides."""
    overrides = list[Override]()
    if isinstance(config, RunConfig):
        overrides, config = secrets_of(config), resolve_config(config)
    elif isinstance(config, Path):
        config = str(config)
    overrides += overrides_of(settings or {})
    plain: dict[str, Any] = {
        name: str(it) if isinstance(it, Path) else it for name, it in options.items()
    }
    return RunOptions(config=config, settings=overrides, **plain)


def run_loop(
    options: RunOptions, lake: Path, name: str | None, fork: str | None, display: Display
) -> ReadOnlyRun:
    """Run the loop in a child process, and open the run.

    Raises:
        ConfigError, FaultError, NothingToTrainOn, Regressed, Stopped: as `work_in_child`.
    """
    options = options.in_lake(lake)
    config = options.resolve()
    job = Job(config=config, lake=lake, name=name or options.name_of(config), fork=fork)
    work_in_child(job, display=display)
    return ReadOnlyRun(open_run(lake, job.name))


def resume(
    run: Place | ReadOnlyRun | None,
    lake: Place | None,
    changes: Mapping[str, object],
    *,
    retry_unscored: bool,
    display: Display,
) -> ReadOnlyRun:
    """Resume a run in a child process, and open it; a run with a daemon is only woken.

    Raises:
        ConfigError, FaultError, NothingToTrainOn, Regressed, Stopped: as `work_in_child`.
    """
    root, name = run_of(run, lake)
    found = resumption(root, name, overrides_of(changes), retry_unscored=retry_unscored)
    if display != "none":
        for line in found.notes:
            say(line)
    if found.job is not None:
        work_in_child(found.job, lift_pause=True, display=display)
    return ReadOnlyRun(open_run(root, found.run))


def take_over(lake: Place, run: str | None, *, force: bool) -> ReadOnlyRun:
    """Take over a run of a bucket on this machine, and open it.

    Raises:
        TakeoverError, TakenOverError, BucketError: as `takeover`.
    """
    root = lake_at(lake)
    name, _ = takeover(root, run, force=force)
    return ReadOnlyRun(open_run(root, name))
