"""Runs with a practice off and on, over seeds, and their figures with errors.

An arm is a run of the tiny world. The arms of a seed fork each other, so they share everything that
the practice does not touch: prompts, samples, annotations, grades. Finished runs are not repeated.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import lpfloop
from lpfloop.loop.evaluation.panels import Panel
from lpfloop.loop.library.read_only_run import ReadOnlyRun

DIFFERENCE = "difference, seed by seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line: the folder of the runs, the seeds, and settings for all."""

    lake: Path
    seeds: Sequence[int]
    settings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text cells under their titles."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] * len(self.titles)
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.titles, rule, *self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a study found: the claim it tests, its tables, and its plot."""

    claim: str
    tables: Sequence[Table]
    panels: Sequence[Panel] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean over seeds and its standard error, which is NaN for one seed."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Mean":
        """Average the values of independent seeds."""
        told = list(values)
        error = stdev(told) / sqrt(len(told)) if len(told) > 1 else float("nan")
        return cls(value=fmean(told), error=error)

    def shown(self, digits: int = 3, *, signed: bool = False) -> str:
        """Return value and error as a cell."""
        sign = "+" if signed else ""
        return f"{self.value:{sign}.{digits}f} ± {self.error:.{digits}f}"


def compared(title: str, arms: Sequence[Sequence[float]]) -> list[str]:
    """Return a row: the means of two arms over seeds, and the mean of their paired difference."""
    off, on = arms
    difference = Mean.of(b - a for a, b in zip(off, on, strict=True))
    return [title, Mean.of(off).shown(), Mean.of(on).shown(), difference.shown(signed=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """The runs of a study: one variant, with shared settings and those of each arm."""

    study: str
    variant: str
    shared: Sequence[str]
    arms: Mapping[str, Sequence[str]]

    def make(self, options: Options) -> None:
        """Run what is missing; the other arms of a seed fork the first."""
        for seed in options.seeds:
            first, *others = self.arms
            self._run(options, first, seed)
            for arm in others:
                self._run(options, arm, seed, fork=self.name(first, seed))

    def name(self, arm: str, seed: int) -> str:
        """Return the name of the run of an arm under a seed."""
        return f"{self.study}-{arm}-{seed}"

    def opened(self, options: Options, arm: str) -> Iterator[ReadOnlyRun]:
        """Give the runs of an arm, seed by seed; each is closed before the next opens."""
        for seed in options.seeds:
            with lpfloop.open(self.name(arm, seed), lake=options.lake) as run:
                yield run

    def checkpoint(self, options: Options, arm: str) -> Path:
        """Return the folder of the last policy that an arm made under the first seed."""
        with lpfloop.open(self.name(arm, options.seeds[0]), lake=options.lake) as run:
            paths = run.checkpoints().sort("iteration").collect()["path"]
            return (run.folder / paths[-1]).resolve()

    def _run(self, options: Options, arm: str, seed: int, fork: str | None = None) -> None:
        name = self.name(arm, seed)
        words = ["--lake", str(options.lake), "--run", name, "--seed", str(seed)]
        words += ["--config", "tiny", "--variant", self.variant, "--iterations", "1"]
        for setting in (*self.shared, *self.arms[arm], *options.settings):
            words += ["--set", setting]
        begun = (options.lake / "runs" / name).exists()
        words += ["--fork", fork] if fork is not None and not begun else []
        command = [sys.executable, "-P", "-m", "lpfloop", "run", *words]
        subprocess.run(command, check=True, stdout=sys.stderr)
