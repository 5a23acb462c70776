"""Compare variants over seeds: what two iterations gain on held-out prompts, with standard errors.

Runs `lpfloop run` for every variant and seed (finished runs are not repeated), then prints Markdown
tables: each run's M_0 ... M_N, and each variant's gain with its error over the seeds. That `rlrf`
gains more in mathematics than `reward-only` is built in: the tiny world's reward model was made
blind to arithmetic (CORRECT_WEIGHT in loop/tiny/lessons.py).

    python benchmarks/variants.py --lake lake/variants --seeds 0 1 2
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

METRICS = {"math_accuracy": "math", "sentence_match": "facts", "general_fulfilled": "general"}
Results = Mapping[tuple[str, int], Sequence[Mapping[str, float]]]


def run(variant: str, seed: int, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Run one variant under one seed; return each iteration's metrics, most in percent."""
    name = f"{variant}-seed{seed}"
    lpfloop = [sys.executable, "-P", "-m", "lpfloop"]
    lake = ["--lake", str(arguments.lake)]
    options = ["--variant", variant, "--seed", str(seed), "--run", name]
    options += ["--iterations", str(arguments.iterations)]
    options += ["--set", "alarms.on_alarm=continue"]  # a baseline may please its judge to the end
    options += [word for pair in arguments.set for word in ("--set", pair)]
    subprocess.run([*lpfloop, "run", *options, *lake], check=True, stdout=sys.stderr)
    told = subprocess.run(
        [*lpfloop, "status", name, "--json", *lake], check=True, capture_output=True, text=True
    )
    found: list[dict[str, float]] = []
    for iteration in json.loads(told.stdout)["iterations"]:
        metrics = iteration["metrics"]
        row = {title: 100 * metrics[name]["value"] for name, title in METRICS.items()}
        row["length"] = metrics["mean_length"]["value"]
        row["seconds"] = sum(iteration["seconds"].values())
        found.append(row)
    return found


def with_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values and its standard error."""
    return fmean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")


def print_runs(results: Results) -> None:
    """Print every run's checkpoints."""
    columns = [*METRICS.values(), "length", "seconds"]
    print("| variant | seed | model |", " | ".join(columns), "|")
    print("| --- " * (3 + len(columns)) + "|")
    for (variant, seed), iterations in results.items():
        for number, row in enumerate(iterations):
            cells = " | ".join(f"{row[column]:.1f}" for column in columns)
            print(f"| `{variant}` | {seed} | M_{number} | {cells} |")


def print_gains(results: Results) -> None:
    """Print each variant's gain from M_0 to the last checkpoint, over seeds."""
    variants = list(dict.fromkeys(variant for variant, _ in results))
    titles = [*METRICS.values(), "mean of the three"]
    print("\n| gain, M_0 to last (mean ± s.e. over seeds) |", " | ".join(titles), "|")
    print("| --- " * (1 + len(titles)) + "|")
    gains = {
        v: [gain(rows) for (variant, _), rows in results.items() if variant == v] for v in variants
    }
    for variant in variants:
        cells = " | ".join(shown([g[t] for g in gains[variant]]) for t in titles)
        print(f"| `{variant}` | {cells} |")
    first, *others = variants
    for other in others:
        pairs = list(zip(gains[first], gains[other], strict=True))
        cells = " | ".join(shown([a[t] - b[t] for a, b in pairs]) for t in titles)
        print(f"| `{first}` minus `{other}`, seed by seed | {cells} |")


def gain(iterations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the gain of the last checkpoint over the first, in points."""
    points = {t: iterations[-1][t] - iterations[0][t] for t in METRICS.values()}
    return {**points, "mean of the three": fmean(points.values())}


def shown(values: Sequence[float]) -> str:
    """Return a mean and its standard error as a cell."""
    mean, error = with_error(values)
    return f"{mean:+.1f} ± {error:.1f}"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", default=["rlrf", "reward-only"])
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="section.key=value")
    arguments = parser.parse_args()
    results = {
        (variant, seed): run(variant, seed, arguments)
        for seed in arguments.seeds
        for variant in arguments.variants
    }
    print_runs(dict(sorted(results.items(), key=lambda item: arguments.variants.index(item[0][0]))))
    print_gains(results)


if __name__ == "__main__":
    main()
