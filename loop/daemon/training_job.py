"""The job of training a new run's policy, or a reward model, from rows of another run.

For a run with a loop the rows are one of its derived tables, and the new run continues as the run
would have. An imported run has neither a policy nor a configuration: options name both, and the
rows are its own comparisons, or a derived table, for the recipe for people's labels.
"""

import json
import os
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...configs.load import Override, stored_config
from ...configs.schema import ConfigError
from ...stores.address import run_argument
from ...stores.lake import RunReader
from ..lake.imports import IMPORTED, require_loop
from ..lake.query.runs import open_run
from ..run.run import OF_RUN
from .derived_run import given_by
from .job import Job, require_own_files
from .run_request import RunOptions

TRAIN = "lpfloop train"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """The rows to train on, the model to train, and the options of the new run.

    `derived` names a derived table, of which the rows of one `iteration` are taken; `reward` is to
    train a reward model; `name` is the new run's. Only an imported run takes all `options`.
    """

    derived: str | None = None
    iteration: int | None = None
    reward: bool = False
    name: str | None = None
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def method(self) -> str:
        """The recipe that learns from people's labels."""
        return "reward-model" if self.reward else "dpo"


def training_job(lake: Path, name: str, request: TrainingRequest) -> Job:
    """Return the job that trains from rows of a run.

    Raises:
        ConfigError: for options that the run does not take, or lacks, or a changed file of the
        user's.
        DerivedError: if the table is not there, or nothing can be trained from it.
        NothingToTrainOn: if it has fewer rows than `training.min_pairs`.
        DamagedError: if it was altered.
    """
    with closing(open_run(lake, name)) as run:
        if run.journal.meta(IMPORTED) is not None:
            return _from_labels(lake, name, request)
        return _from_loop(run, lake, request)


def _from_labels(lake: Path, name: str, request: TrainingRequest) -> Job:
    """Return the job of a run that learns from the comparisons of an imported one."""
    options = request.options
    if options.policy is None:
        raise ConfigError(
            f"run {name} was imported without a policy to train: name one with --policy FOLDER"
        )
    if request.iteration is not None:
        raise ConfigError(f"--iteration: run {name} was imported, and all of its rows are taken")
    table = "" if request.derived is None else f"/{request.derived}"
    selection = (
        ("iterations", 1),
        ("annotation.source", [f"{OF_RUN}{name}{table}"]),
        # The presets of the methods measure by annotators, which are not configured here.
        ("assessment.reference", None),
    )
    first = [Override(source=TRAIN, path=path, value=value) for path, value in selection]
    loop_options = replace(options, recipe=request.method, settings=(*first, *options.settings))
    config = loop_options.in_lake(lake).resolve()
    default = _child_name(name, request) if request.derived else f"{name}-{request.method}"
    return Job(config=config, lake=lake, name=request.name or default)


def _from_loop(run: RunReader, lake: Path, request: TrainingRequest) -> Job:
    """Return the job of a child that is given a derived table of a run."""
    name, options = run.folder.name, request.options
    require_loop(run.journal)
    require_own_files(run.journal)
    if request.derived is None:
        own = run_argument(run.folder)
        raise ConfigError(
            f"run {name} has a loop: name the table to train on with --derived (`lpfloop lake "
            f"derived {own}` lists them, `lpfloop rebuild-pairs {own} --rule RULE` makes one)"
        )
    _refuse_foreign(name, options)
    stored: dict[str, object] = json.loads(run.journal.meta("config") or "{}")
    config = stored_config(stored, options.overrides, os.environ)
    given = given_by(run, request.derived, request.iteration, config, reward=request.reward)
    config = config.model_copy(update={"iterations": given.iteration})
    child = request.name or _child_name(name, request)
    return Job(config=config, lake=lake, name=child, fork=name, given=given)


def _child_name(name: str, request: TrainingRequest) -> str:
    """Return the default name of a run that trains from a derived table."""
    return f"{name}-{request.derived}{'-reward' if request.reward else ''}"


def _refuse_foreign(name: str, options: RunOptions) -> None:
    """Refuse options whose settings a run with a loop has itself."""
    own = {
        "--config": options.config,
        "--policy": options.policy,
        "--prompts": options.prompts,
        "--seed": options.seed,
    }
    for option, value in own.items():
        if value is not None:
            raise ConfigError(
                f"{option}: run {name} has its own, with which the new run begins; leave it out"
            )
