"""Does the loop keep the best policy? Verdicts in runs of several seeds, by held-out prompts.

    python benchmarks/rollback.py --lake lake --seeds 201 202 203 --iterations 5
    python benchmarks/rollback.py --runs lake/runs/seed-201 lake/runs/seed-202

The first command runs the default of the tiny world once a seed, then reports; the second reports
on existing runs. Dev prompts decided in the loop; the whole report is about held-out prompts,
which decide nothing. A rollback was right if the rejected policy's verified success on these is
less than the best policy's so far.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import polars as pl

from lpfloop.loop.data.splits import HELD_OUT
from lpfloop.loop.lake.query.policy_figures import VERIFIED, values_of
from lpfloop.loop.lake.statistics.decisions import Decision, PairedResults, decide
from lpfloop.loop.lake.trace.published_model import configuration
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import PolicyStanding

TASK = "math"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHistory:
    """A run: its policies' held-out results by prompt, their verdicts, the task's clusters."""

    seed: int
    values: dict[int, dict[str, float]]
    standings: Sequence[PolicyStanding]
    clusters: dict[str, str]

    @property
    def published(self) -> int:
        """The iteration of the run's final best policy."""
        return self.standings[-1].best_iteration

    def mean(self, iteration: int, *, task: bool = True) -> float:
        """Return a policy's results in percent: of the task, or of all prompts."""
        own = self.values[iteration]
        return 100 * fmean(v for prompt, v in own.items() if not task or prompt in self.clusters)

    def behind(self) -> Decision | None:
        """Return whether the best policy in the task is better than the published one.

        The level of 2.5 % is divided by the number of policies: the best of several looks better
        than it is.
        """
        best = max(self.values, key=self.mean)
        if best == self.published:
            return None
        prompts = sorted(self.clusters)
        results = PairedResults(
            before=[self.values[self.published][prompt] for prompt in prompts],
            after=[self.values[best][prompt] for prompt in prompts],
            clusters=[self.clusters[prompt] for prompt in prompts],
        )
        return decide(results, alpha=0.025 / (len(self.values) - 1), worthwhile=0.0)

    def rollbacks(self) -> Iterator[tuple[int, bool]]:
        """Yield the iterations with a rejected policy, and whether the rejection was right."""
        best = 0
        for standing in self.standings:
            if not standing.accepted:
                worse = self.mean(standing.iteration, task=False) < self.mean(best, task=False)
                yield standing.iteration, worse
            best = standing.best_iteration


def course(folder: Path) -> CheckpointHistory:
    """Read a run."""
    run = RunReader(folder)
    try:
        scores = run.scan("scores").filter(pl.col("benchmark") == HELD_OUT)
        measured = scores.select(pl.col("metric").unique()).collect()["metric"].to_list()
        prompts = run.scan("prompts").filter(pl.col("task") == TASK, pl.col("split") == HELD_OUT)
        standings = run.scan("standings").sort("iteration").collect()
        return CheckpointHistory(
            seed=configuration(run).seed,
            values=values_of(scores, VERIFIED, measured),
            standings=frame_rows(PolicyStanding, standings),
            clusters=dict(prompts.select("prompt_id", "cluster").collect().iter_rows()),
        )
    finally:
        run.close()


def report(courses: Sequence[CheckpointHistory]) -> None:
    """Print a line for each run, and a summary."""
    last = max(max(found.values) for found in courses)
    models = " | ".join(f"M_{number}" for number in range(last + 1))
    print(f"| seed | {models} | published | behind the best seen | not accepted |")
    print("| --- " * (last + 5) + "|")
    for found in courses:
        cells = " | ".join(f"{found.mean(number):.1f}" for number in sorted(found.values))
        rolled = ", ".join(
            f"M_{number} ({'right' if right else 'wrong'})" for number, right in found.rollbacks()
        )
        print(
            f"| {found.seed} | {cells} | M_{found.published}: {found.mean(found.published):.1f} "
            f"| {_told(found.behind())} | {rolled or 'none'} |"
        )
    gains = [found.mean(found.published) - found.mean(0) for found in courses]
    every = [
        found.mean(found.published, task=False) - found.mean(0, task=False) for found in courses
    ]
    rights = [right for found in courses for _, right in found.rollbacks()]
    passed = sum(d is not None and d.answer == "better" for d in (c.behind() for c in courses))
    above = sum(gain > 0 for gain in gains)
    print()
    print(f"- published above M_0 in {TASK}: {above} of {len(courses)} runs")
    print(f"- gain in {TASK}: {_with_error(gains)} points, the least {min(gains):.1f}")
    print(f"- gain over all prompts: {_with_error(every)} points")
    print(f"- the best {TASK} seen is surely better: {passed} of {len(courses)} runs")
    print(f"- policies not accepted: {len(rights)}, of which {sum(rights)} rightly, by held-out")


def _told(behind: Decision | None) -> str:
    if behind is None:
        return "0: it is the best seen"
    if behind.low is None or behind.high is None:
        return f"{100 * behind.difference:.1f}"
    return f"{100 * behind.difference:.1f} ({100 * behind.low:.1f} to {100 * behind.high:.1f})"


def _with_error(values: Sequence[float]) -> str:
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{fmean(values):+.1f} ± {error:.1f}"


def main() -> None:
    """Run the requested seeds, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lake", type=Path, default=Path("lake"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--runs", type=Path, nargs="+", default=[], help="folders of runs")
    parser.add_argument("--set", action="append", default=[], help="settings of the runs")
    arguments = parser.parse_args()
    folders = list(arguments.runs)
    for seed in arguments.seeds:
        name = f"seed-{seed}"
        options = ["--run", name, "--seed", str(seed), "--iterations", str(arguments.iterations)]
        options += ["--set", "alarms.on_alarm=continue"]
        options += [word for pair in arguments.set for word in ("--set", pair)]
        options += ["--lake", str(arguments.lake)]
        command = [sys.executable, "-P", "-m", "lpfloop", "run", *options]
        subprocess.run(command, check=True, stdout=sys.stderr)
        folders.append(arguments.lake / "runs" / name)
    if not folders:
        parser.error("give --seeds, or --runs")
    report([course(folder) for folder in folders])


if __name__ == "__main__":
    main()
