"""Work that the crash tests interrupt: runs, repairs, forks, collections, stages.

A scenario starts from a lake that `prepare` made, and does `work`, which a test may kill anywhere
and repeat; in the end the run `name` equals an uninterrupted run.
"""

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from s3 import environment
from world import KILLED, RUN, Attempt, Silent, look, loop, train

import lpfloop.loop.stages.publish
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.derived_run import given_by
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import TrainResult
from lpfloop.stores import journal_backups
from lpfloop.stores.garbage import collect, garbage, published_policies
from lpfloop.stores.inspection import repair
from lpfloop.stores.journal import BACKUPS, Journal
from lpfloop.stores.journal_reader import JOURNAL, Reader, file_path
from lpfloop.stores.lake import CHECKPOINTS, run_folder

FORKED = "b"
SCENARIOS = (
    *("run", "recovery", "publication", "repair", "redo", "fork"),
    *("collection", "mending", "restoring"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Work to be killed, on a lake that `prepare` makes.

    `forgets`: the work drops committed answers and requests them again, or starts with an
    unreadable journal.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    name: str = RUN
    forgets: bool = False


def scenarios(config: RunConfig) -> dict[str, Scenario]:
    """Return all scenarios; each ends with what `loop` alone gives on an empty lake."""
    turned = partial(loop, config=config)
    finished = partial(_finished, config=config)
    return {
        "run": Scenario(prepare=_nothing, work=turned),
        "recovery": Scenario(
            prepare=partial(_killed, config=config, at="journal.commit.before#7"), work=turned
        ),
        "publication": Scenario(
            prepare=partial(_killed, config=config, at="checkpoint.published"), work=turned
        ),
        "repair": Scenario(
            prepare=partial(_damaged, config=config),
            work=partial(mend, config=config),
            forgets=True,
        ),
        "redo": Scenario(
            prepare=partial(_damaged, config=config),
            work=partial(mend, config=config, redo=True),
            forgets=True,
        ),
        "fork": Scenario(prepare=finished, work=partial(fork, config=config), name=FORKED),
        "collection": Scenario(
            prepare=partial(_littered, config=config), work=partial(tidy, config=config)
        ),
        "mending": Scenario(
            prepare=partial(_with_damaged_journal, config=config),
            work=partial(mend_journal, config=config),
            forgets=True,
        ),
        "restoring": Scenario(
            prepare=partial(_with_lost_page, config=config),
            work=partial(mend_journal, config=config),
            forgets=True,
        ),
    }


def mend(lake: Path, *, config: RunConfig, redo: bool = False) -> None:
    """Repair the run, and do the pending work again."""
    journal = Journal(run_folder(lake, RUN))
    repair(journal)
    if redo:
        journal.redo()
    journal.close()
    loop(lake, config=config)


def mend_journal(lake: Path, *, config: RunConfig) -> None:
    """Repair the run's journal, and run the loop to its end."""
    journal_backups.mend(run_folder(lake, RUN))
    loop(lake, config=config)


def fork(lake: Path, *, config: RunConfig) -> None:
    """Fork the run, or continue an existing fork."""
    there = (run_folder(lake, FORKED) / JOURNAL).exists()
    loop(lake, config=config, name=FORKED, fork=None if there else RUN)


def tidy(lake: Path, *, config: RunConfig) -> None:
    """Remove all garbage and all but the newest weights; check that the run is done."""
    journal = Journal(run_folder(lake, RUN))
    collect(journal, garbage(journal, keep=1))
    left = garbage(journal, keep=1)
    journal.close()
    if left:
        raise RuntimeError(f"garbage was left: {left}")
    loop(lake, config=config)


def done_and_looked_at(lake: Path, *, scenario: Scenario) -> None:
    """Finish the scenario's work, and check the run."""
    scenario.work(lake)
    look(lake, name=scenario.name)


def _nothing(lake: Path) -> None:
    """Start with an empty lake."""


def _finished(lake: Path, *, config: RunConfig) -> None:
    Attempt(lake=lake, work=partial(loop, config=config)).finish()


def _killed(lake: Path, *, config: RunConfig, at: str) -> None:
    code = Attempt(lake=lake, work=partial(loop, config=config), points={at: "kill"}).start()
    if code != KILLED:
        raise RuntimeError(f"{at} was not reached (exit code {code})")


def _damaged(lake: Path, *, config: RunConfig) -> None:
    """Alter a part, delete another, and truncate a checkpoint's file."""
    _finished(lake, config=config)
    folder = run_folder(lake, RUN)
    reader = Reader(folder)
    altered, deleted = (
        file_path(folder, table, reader.parts(table=table, iteration=1)[0].file or "")
        for table in ("critiques", "pairs")
    )
    checkpoint = folder / CHECKPOINTS / published_policies(reader)[0]
    reader.close()
    flip(altered)
    deleted.unlink()
    truncate(checkpoint / "extra" / "weights")


def _littered(lake: Path, *, config: RunConfig) -> None:
    """Leave files that no unit refers to."""
    _finished(lake, config=config)
    folder = run_folder(lake, RUN)
    file = next((folder / "files" / "candidates").iterdir())
    shutil.copy(file, file.with_stem("0" * 64))
    checkpoint = next((folder / CHECKPOINTS).iterdir())
    shutil.copytree(checkpoint, checkpoint.with_name("0" * 64))


def _with_damaged_journal(lake: Path, *, config: RunConfig) -> None:
    """Alter the journal of a finished run."""
    _finished(lake, config=config)
    flip(run_folder(lake, RUN) / JOURNAL)


def _with_lost_page(lake: Path, *, config: RunConfig) -> None:
    """Alter a page of a run's journal that its backups lack: iteration 2, half done."""
    _killed(lake, config=config, at="checkpoint.trained#2")
    folder = run_folder(lake, RUN)
    Journal(folder).close()
    flip(folder / JOURNAL, last_key_in(folder))


def last_key_in(folder: Path) -> int:
    """Return the offset in the journal's file of a unit's key that no backup has."""
    with closing(Reader(folder)) as reader:
        last = reader.stages()[-1]
        key = reader.keys(last.iteration, last.stage)[-1].encode()
    assert not any(key in path.read_bytes() for path in (folder / BACKUPS).iterdir())
    return (folder / JOURNAL).read_bytes().rindex(key)


def flip(path: Path, place: int | None = None) -> None:
    """Flip one bit of a file, by default in its middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Remove the last byte of a file."""
    path.write_bytes(path.read_bytes()[:-1])


# a child run, trained from a derived table


CHILD = "child"


def train_child(lake: Path, *, config: RunConfig, name: str, iteration: int | None = None) -> None:
    """Train a child from derived rows, or continue an existing one."""
    run = open_run(lake, RUN)
    given = given_by(run, name, iteration, config)
    run.close()
    wanted = config.model_copy(update={"iterations": given.iteration})
    job = Job(config=wanted, lake=lake, name=CHILD, fork=RUN, given=given)
    if (run_folder(lake, CHILD) / JOURNAL).exists():
        job = Job(config=wanted, lake=lake, name=CHILD)
    run_loop(job, Silent(), StopSignal())


# a lake in a bucket


def in_bucket(
    lake: Path, *, endpoint: str, config: RunConfig, name: str = RUN, fork: str | None = None
) -> None:
    """Run the loop in a process that has access to the bucket, and check the result."""
    os.environ.update(environment(endpoint))
    loop(lake, config=config, name=name, fork=fork)
    look(lake, name=name)


# kills named by the stage that they hit


Moment = Literal["begun", "one unit", "training"]
_SEEN = "stages"


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill point of a run: when a stage starts, has a first unit, or is training."""

    iteration: int
    stage: str
    moment: Moment

    def strikes(self, iteration: int, stage: str, moment: Moment) -> None:
        """Kill this process with SIGKILL if this is the place."""
        if self == Kill(iteration, stage, moment):
            os.kill(os.getpid(), signal.SIGKILL)


class Killing(Silent):
    """A reporter that kills its process at a place, and knows the stage that began last."""

    def __init__(self, at: Kill) -> None:
        self.at = at
        self.now = (0, "")

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        self.now = (iteration, stage)
        if done < planned:
            self.at.strikes(iteration, stage, "begun")

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        self.at.strikes(iteration, stage, "one unit")

    def train(self, job: TrainJob, **options: object) -> TrainResult:
        """Train with the fake; at the place, leave half of a model."""
        result = train(job, **options)
        if self.at == Kill(*self.now, "training"):
            (result.output / "extra" / "weights").write_text("half")
            self.at.strikes(*self.now, "training")
        return result


class Noting(Silent):
    """A reporter that writes the names of stages with pending work into a file, in order."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / _SEEN

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            with self.file.open("a") as file:
                file.write(f"{iteration} {stage}\n")


def note_stages(lake: Path, *, config: RunConfig) -> None:
    """Run the loop, and record its stages."""
    run_loop(Job(config=config, lake=lake, name=RUN), Noting(lake), StopSignal())


def stages_noted(lake: Path) -> list[tuple[int, str]]:
    """Return the recorded stages, in order."""
    lines = (line.split(" ", 1) for line in (lake / _SEEN).read_text().splitlines())
    return [(int(iteration), stage) for iteration, stage in lines]


def killed_in_stage(lake: Path, *, config: RunConfig, at: Kill) -> None:
    """Run the loop until it kills itself at a place."""
    reporter = Killing(at)
    lpfloop.loop.stages.publish.train = reporter.train
    run_loop(Job(config=config, lake=lake, name=RUN), reporter, StopSignal())


def kill_places(stages: Sequence[tuple[int, str]]) -> list[Kill]:
    """Return where to kill a run: after the first unit of a stage; three times about a training."""
    moments: Mapping[str, tuple[Moment, ...]] = {"train": ("begun", "training", "one unit")}
    return [
        Kill(iteration, stage, moment)
        for iteration, stage in stages
        for moment in moments.get(stage, ("one unit",))
    ]
