"""Resuming a run: with its stored configuration and raised limits, or by its daemon.

A run of a bucket is taken over first, if another machine worked on it.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ...configs.load import Override, overrides_given, stored_config
from ...configs.schema import ConfigError, RunConfig
from ...stores.address import run_argument
from ...stores.lake import RunReader, run_names
from ...stores.takeover import TakenOverRun, take_over
from ..lake.imports import IMPORTED, require_loop
from ..lake.imports.answers_file import stored_answers
from ..lake.query.runs import open_run
from ..lake.trace.published_model import configuration
from ..stages.unscored import count_unread, to_retry, unscored_stages
from .control import Command, NoDaemonError, alive, ask
from .job import Job, require_own_files
from .progress import progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """The job to resume, and lines on its re-use; without a job, a daemon does it."""

    run: str
    notes: tuple[str, ...]
    job: Job | None = None
    daemon: int | None = None


def resumption(
    lake: Path,
    name: str | None,
    changes: Sequence[str | Override] = (),
    *,
    retry_unscored: bool = False,
) -> Resumption:
    """Return how to resume a run; if a daemon works on it, its pause is lifted at once.

    Raises:
        ConfigError: if it was imported, a file of the user's has changed, or a daemon works on it
        and
            cannot apply the options.
        NoSuchRunError: if it does not exist.
    """
    name, raised = name or (run_names(lake) or [None])[-1], overrides_given(changes)
    with closing(open_run(lake, name)) as reader:
        folder = reader.folder
        answers = stored_answers(reader.journal)
        if answers is None:
            require_loop(reader.journal)
        if alive(folder):
            # A killed daemon's socket lives until the last of its threads has ended.
            with suppress(NoDaemonError):
                return _lift_pause(folder, raised, retry_unscored=retry_unscored)
        require_own_files(reader.journal)
        stored = json.loads(reader.journal.meta("config") or "{}")
        config = stored_config(stored, raised, os.environ)
        again = _to_ask_again(reader) if retry_unscored else ()
        job = Job(
            config=config,
            lake=lake,
            name=folder.name,
            retry_unscored=retry_unscored,
            answers=answers,
        )
        return Resumption(run=job.name, notes=(*outlook(reader, config), *again), job=job)


def _lift_pause(folder: Path, raised: Sequence[Override], *, retry_unscored: bool) -> Resumption:
    """Tell the run's daemon to continue, with the raised limits."""
    name, own = folder.name, run_argument(folder)
    if retry_unscored:
        raise ConfigError(
            f"--retry-unscored: a daemon works on run {name}; `lpfloop stop {own}` first"
        )
    if any(override.path == "iterations" for override in raised):
        raise ConfigError(
            f"--iterations: a daemon works on run {name}; `lpfloop stop {own}` first, then resume "
            "it with more iterations"
        )
    for override in raised:
        ask(folder, Command(op="set", path=override.path, value=override.value))
    notes = tuple(f"{one.path} is {one.value} from the next unit on" for one in raised)
    return Resumption(run=name, notes=notes, daemon=ask(folder, Command(op="resume")).pid)


def _to_ask_again(reader: RunReader) -> Iterator[str]:
    """Yield lines on replies that are requested again, and on those that stay unread."""
    pending = to_retry(reader.journal)
    for stage in pending:
        where = f"iteration {stage.iteration}, {stage.stage}"
        yield f"asks again about {stage.rows:,} {stage.kind.noun} of {where}"
    late = [stage for stage in unscored_stages(reader.journal) if stage.trained is not None]
    if late:
        yield f"{count_unread(late)} stay unread: models learned from the others already"
    if not pending:
        yield "every reply was read: no request is sent again"


def outlook(reader: RunReader, config: RunConfig) -> Iterator[str]:
    """Yield lines on the units that a resumed run re-uses, and on its remaining work."""
    stages = progress(reader.journal, running=False)
    done = [stage for stage in stages if stage.done]
    if done:
        yield f"re-uses {sum(stage.done for stage in done):,} units:"
    for number in sorted({stage.iteration for stage in done}):
        parts = ", ".join(f"{s.stage} {s.done}/{s.planned}" for s in done if s.iteration == number)
        yield f"  iteration {number}: {parts}"
    pending = [stage for stage in stages if stage.pending]
    last = max((stage.iteration for stage in stages), default=0)
    for stage in pending:
        yield f"will make {stage.pending:,} units of iteration {stage.iteration}, {stage.stage}"
    if stored_answers(reader.journal) is not None:
        return
    if last < config.iterations or pending or not stages:
        yield f"will go on to iteration {config.iterations}"
    else:
        yield f"all {config.iterations} iterations were begun; will make what is missing"


def takeover(lake: Path, name: str | None, *, force: bool = False) -> tuple[str, Sequence[str]]:
    """Take over a run of a bucket; return its name, and lines on its journal and its future.

    Raises:
        TakeoverError, TakenOverError, BucketError: as `stores.takeover.take_over`.
    """
    taken_over = take_over(lake, name, force=force)
    with closing(RunReader(taken_over.folder)) as reader:
        imported = reader.journal.meta(IMPORTED) is not None
        ended = ["its rows were imported: there is no loop to continue"]
        future = ended if imported else outlook(reader, configuration(reader))
        return taken_over.folder.name, (*_found_lines(taken_over), *future)


def _found_lines(taken_over: TakenOverRun) -> Iterator[str]:
    """Yield lines on the journal and the objects that were found."""
    snapshot = taken_over.snapshot
    when = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(snapshot.changed))
    before = taken_over.before.describe()
    yield f"run {taken_over.folder.name} is this machine's now; before, it was {before}"
    yield (
        f"its journal is snapshot {snapshot.number} of epoch {snapshot.epoch}, of {when}: what was "
        "committed after it is pending again"
    )
    if taken_over.passed_over:
        yield f"newer snapshots that are damaged, and were passed over: {taken_over.passed_over}"
    if taken_over.missing:
        units = len({damage.unit for damage in taken_over.missing})
        yield f"{units:,} units are pending again, as their objects are not in the bucket"
