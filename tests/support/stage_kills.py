"""Kills in the middle of a stage: when it has a unit, when it begins, or while it trains.

A failpoint is met by whichever stage comes to it; here a kill is named by the stage that it hits.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crashing import RUN, Silent, train

import lpfloop.loop.stages.publish
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.train_model import TrainJob, TrainResult

Moment = Literal["begun", "one unit", "training"]
SEEN = "stages"


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a run is killed: when a stage is begun, has a first unit, or is in its training."""

    iteration: int
    stage: str
    moment: Moment

    def strikes(self, iteration: int, stage: str, moment: Moment) -> None:
        """End this process, as nothing can catch, if this is the place."""
        if self == Kill(iteration, stage, moment):
            os.kill(os.getpid(), signal.SIGKILL)


class Killing(Silent):
    """A reporter that ends its process at a place, and knows which stage was begun last."""

    def __init__(self, at: Kill) -> None:
        self.at = at
        self.now = (0, "")

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        self.now = (iteration, stage)
        if done < planned:
            self.at.strikes(iteration, stage, "begun")

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        self.at.strikes(iteration, stage, "one unit")

    def train(self, job: TrainJob, **options: object) -> TrainResult:
        """Train as the stand-in does; at the place, leave half of a model."""
        result = train(job, **options)
        if self.at == Kill(*self.now, "training"):
            (result.output / "extra" / "weights").write_text("half")
            self.at.strikes(*self.now, "training")
        return result


class Noting(Silent):
    """A reporter that notes in a file which stages had something to do, in order."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / SEEN

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            with self.file.open("a") as file:
                file.write(f"{iteration} {stage}\n")


def noted(lake: Path, *, config: RunConfig) -> None:
    """Turn the loop, and note its stages."""
    run_loop(Job(config=config, lake=lake, name=RUN), Noting(lake), StopSignal())


def stages_noted(lake: Path) -> list[tuple[int, str]]:
    """Return the stages that were noted, in order."""
    lines = (line.split(" ", 1) for line in (lake / SEEN).read_text().splitlines())
    return [(int(iteration), stage) for iteration, stage in lines]


def killed(lake: Path, *, config: RunConfig, at: Kill) -> None:
    """Turn the loop until it comes to a place, and be killed there."""
    reporter = Killing(at)
    lpfloop.loop.stages.publish.train = reporter.train
    run_loop(Job(config=config, lake=lake, name=RUN), reporter, StopSignal())


def places(stages: Sequence[tuple[int, str]]) -> list[Kill]:
    """Return where to kill a run: after the first unit of a stage; about a training, thrice."""
    moments: Mapping[str, tuple[Moment, ...]] = {"train": ("begun", "training", "one unit")}
    return [
        Kill(iteration, stage, moment)
        for iteration, stage in stages
        for moment in moments.get(stage, ("one unit",))
    ]
