"""AlpacaFarm's methods side by side, over seeds, and how far their reward models can be trusted.

Runs `lpfloop run --variants all` with noisy annotators (a quarter of the labels flipped), then
best-of-n and PPO again without noise. Finished runs are not repeated. Prints the table of methods
as Markdown, then the points of the curves; with `--plots FOLDER` it also draws them.

    python benchmarks/alpacafarm.py --lake lake/farm --seeds 3 --plots docs/images
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import polars as pl

import lpfloop
from lpfloop.loop.daemon.suite import chosen_variants
from lpfloop.loop.evaluation.compare_runs import Measure, Result, by_method, results
from lpfloop.loop.evaluation.panels import Lines, Series
from lpfloop.loop.evaluation.plots import write_plot
from lpfloop.loop.tiny.human import score

NOISY, CLEAN = "farm", "clean"
CURVES = ("best-of-n", "ppo")
LABELS = {NOISY: "25 % of labels flipped", CLEAN: "no noise"}
COLUMNS: Mapping[str, tuple[str, float]] = {
    "win_rate": ("win-rate, %", 100.0),
    "length_controlled_win_rate": ("length-controlled, %", 100.0),
    "true_score": ("true score", 1.0),
    "reward": ("reward", 1.0),
    "mean_length": ("length", 1.0),
    "kl": ("KL to M_0", 1.0),
}
AT_ONCE = 5
"""PPO steps averaged in each point of the curve, because a single step is noisy."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A mean over seeds, point by point, and its standard error."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]

    def series(self, label: str) -> Series:
        """Return the curve with its error as a band."""
        low = [value - error for value, error in zip(self.y, self.error, strict=True)]
        high = [value + error for value, error in zip(self.y, self.error, strict=True)]
        return Series(label=label, x=self.x, y=self.y, low=low, high=high)


def run(prefix: str, variants: str, arguments: argparse.Namespace, *settings: str) -> None:
    """Run variants from the same start; finished runs are not repeated."""
    options = ["--variants", variants, "--run", prefix, "--lake", str(arguments.lake)]
    options += ["--seed", str(arguments.seed), "--seeds", str(arguments.seeds)]
    options += [word for pair in (*arguments.set, *settings) for word in ("--set", pair)]
    command = [sys.executable, "-P", "-m", "lpfloop", "run", *options]
    subprocess.run(command, check=True, stdout=sys.stderr)


def names(prefix: str, variants: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    """Return the runs of some variants, seed by seed."""
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    return [f"{prefix}-{variant}-{seed}" for seed in seeds for variant in variants]


def cell(measure: Measure | None, factor: float) -> str:
    """Write a number with its error, if there is one."""
    if measure is None:
        return ""
    value = f"{factor * measure.value:.2f}"
    return value if measure.stderr is None else f"{value} ± {factor * measure.stderr:.2f}"


def print_methods(found: Sequence[Result]) -> None:
    """Print one row per method."""
    titles = [title for title, _ in COLUMNS.values()]
    print("| method |", " | ".join(titles), "| million tokens | minutes |")
    print("| --- " * (len(titles) + 3) + "|")
    for result in found:
        cells = [cell(result.numbers.get(m), factor) for m, (_, factor) in COLUMNS.items()]
        spent = f"{result.tokens / 1e6:.2f} | {result.hours * 60:.1f}"
        print(f"| `{result.method}` |", " | ".join(cells), f"| {spent} |")


def print_leads(found: Sequence[Result], rival: str) -> None:
    """Print how far each method is ahead of one, prompt by prompt."""
    behind = next(result for result in found if result.method == rival)
    print(f"\n| ahead of `{rival}` | win-rate, points | true score |")
    print("| --- | --- | --- |")
    for result in found:
        if result is behind:
            continue
        told = list[str]()
        for metric, factor in (("win_rate", 100.0), ("true_score", 1.0)):
            lead = result.lead(behind, metric)
            error = 0.0 if lead is None else factor * lead.standard_error
            told.append("" if lead is None else f"{factor * lead.value:+.2f} ± {error:.2f}")
        print(f"| `{result.method}` |", " | ".join(told), "|")


def over_seeds(curves: Sequence[Mapping[float, float]]) -> Curve:
    """Average the curves of several seeds at the points they share."""
    points = sorted(set[float].intersection(*(set(curve) for curve in curves)))
    values = [[curve[x] for curve in curves] for x in points]
    errors = [stdev(v) / sqrt(len(v)) if len(v) > 1 else 0.0 for v in values]
    return Curve(points, [fmean(v) for v in values], errors)


def best_of_n(name: str, lake: Path, metric: str) -> dict[float, float]:
    """Return the expected metric of the best of n answers, for each n."""
    with lpfloop.open(name, lake=lake) as opened:
        rows = (
            opened.evaluations()
            .filter(pl.col("metric") == f"expected_{metric}")
            .select("benchmark", "value")
            .collect()
        )
    return {float(of.removeprefix("best-of-")): value for of, value in rows.iter_rows()}


def ppo(name: str, lake: Path, metric: str) -> dict[float, float]:
    """Return the mean of a metric over the rollouts of every few steps, by the last of them."""
    with lpfloop.open(name, lake=lake) as opened:
        rows = (
            opened.rollouts()
            .join(opened.candidates(), on="candidate_id")
            .join(opened.prompts().select("prompt_id", "messages"), on="prompt_id")
        )
        found = rows.select("step", "reward", "text", "messages").sort("step").collect()
    values: dict[float, list[float]] = {}
    for step, reward, text, messages in found.iter_rows():
        value = reward if metric == "reward" else score(messages[-1]["content"], text)
        values.setdefault(-(-step // AT_ONCE) * AT_ONCE, []).append(value)
    return {step: fmean(told) for step, told in values.items()}


def panels(arguments: argparse.Namespace) -> Iterator[Lines]:
    """Give proxy reward and true score of best-of-n and PPO, with noise and without."""
    read = {"best-of-n": best_of_n, "ppo": ppo}
    axes = {"best-of-n": "n", "ppo": "PPO step"}
    for variant in CURVES:
        for metric, title in (("reward", "reward model"), ("true_score", "true score")):
            series = list[Series]()
            for prefix in (CLEAN, NOISY):
                runs = names(prefix, [variant], arguments)
                curve = over_seeds([read[variant](n, arguments.lake, metric) for n in runs])
                series.append(curve.series(LABELS[prefix]))
                told = ", ".join(f"{x:g}: {y:.3f}" for x, y in zip(curve.x, curve.y, strict=True))
                print(f"- {variant}, {title}, {LABELS[prefix]}: {told}")
            yield Lines(
                series=series,
                title=f"{variant}: {title}",
                x_label=axes[variant],
                y_label=title,
                log_x=variant == "best-of-n",
            )


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    run(NOISY, "all", arguments)
    run(CLEAN, ",".join(("sft", *CURVES)), arguments, "annotation.flip_probability=0")
    runs = names(NOISY, [v for v in chosen_variants("all") if v != "reward-model"], arguments)
    found = by_method(results(arguments.lake, runs))
    print_methods(found)
    print_leads(found, "sft")
    print()
    drawn = list(panels(arguments))
    if arguments.plots is not None:
        write_plot(arguments.plots / "over-optimisation.svg", drawn, force=True)


if __name__ == "__main__":
    main()
