"""The runs of a study as evidence: every arm's, seed by seed, open for reading."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...stores.lake import RunReader
from ..lake.query.runs import ending, open_run
from .claims import SeedEstimate

Measured = TypeVar("Measured")
PREFIX = "study"
"""The prefix of studies' runs in the tiny world."""
FINAL = ("done: ", "NothingToTrainOn: ", "Regressed: ", "AlarmStopError: ")
"""The beginnings of the ends after which a run cannot be continued."""


def final_end(run: RunReader) -> str | None:
    """Return how a run ended; None if it was stopped or still runs."""
    end = ending(run.journal)
    return end if end is not None and end.startswith(FINAL) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The runs of a study's arms under its seeds."""

    lake: Path
    seeds: tuple[int, ...]
    prefix: str = PREFIX

    def name(self, arm: str, seed: int) -> str:
        """Return the name of the run of an arm under a seed."""
        return f"{self.prefix}-{arm}-{seed}"

    def names(self, arm: str) -> list[str]:
        """Return the names of the runs of an arm, seed by seed."""
        return [self.name(arm, seed) for seed in self.seeds]

    def runs(self, arm: str) -> Iterator[RunReader]:
        """Give the runs of an arm, seed by seed; each is closed before the next opens.

        Raises:
            NoSuchRunError: if one is not there.
        """
        for name in self.names(arm):
            with closing(open_run(self.lake, name)) as run:
                yield run

    def by_seed(self, arm: str, measure: Callable[[RunReader], Measured]) -> tuple[Measured, ...]:
        """Return the measurement of each run of an arm, in the order of the seeds."""
        return tuple(measure(run) for run in self.runs(arm))

    def lead(
        self, first: str, second: str, measure: Callable[[RunReader], float], unit: str = "points"
    ) -> SeedEstimate:
        """Return how much more of a measure the runs of one arm have, paired by seed."""
        own, other = (self.by_seed(arm, measure) for arm in (first, second))
        return SeedEstimate.difference(own, other, unit)
