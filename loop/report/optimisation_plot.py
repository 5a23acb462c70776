"""How far optimising a reward pays: the win-rate over steps, samples and rounds, against the proxy.

AlpacaFarm's Figures 5, 12 and 13, from a run's rows alone. A point is a policy that PPO or Quark
published at a step, the best of n samples, or the policy of an iteration. Its proxy is the mean
reward of its answers; if a run trains its reward model itself, the mean reward of the step's
rollouts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ...stores.lake import RunReader
from ..data.splits import DEV, HELD_OUT
from ..data.step_names import step_of
from ..evaluation.panels import Lines, Panel, Series
from ..lake.statistics.share_interval import share_interval
from .report_plot import ReportPlot, names_of
from .run_rows import none_made, recipe_of

STEP, SAMPLES, ROUND = "step", "samples", "iteration"
X_LABELS: Mapping[str, str] = {STEP: "step", SAMPLES: "n of best-of-n", ROUND: "iteration"}
BEST_OF = "best-of-"
WIN, CONTROLLED, REWARD, KL = "win_rate", "length_controlled_win_rate", "reward", "kl"
NAMED: Mapping[str, str] = {
    WIN: WIN,
    CONTROLLED: CONTROLLED,
    REWARD: REWARD,
    "expected_reward": REWARD,
    KL: KL,
    "kl_bound": KL,
}
"""The figures of a point, by the metrics that may hold them."""
EVEN = 50.0
FEWEST = 2
"""A line needs at least so many points."""
SCHEMA: Mapping[str, Any] = {
    "run": pl.String,
    "method": pl.String,
    "by": pl.String,
    "split": pl.String,
    "iteration": pl.Int64,
    "x": pl.Int64,
    WIN: pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    CONTROLLED: pl.Float64,
    REWARD: pl.Float64,
    KL: pl.Float64,
    "n": pl.Int64,
}
SQL = (
    "SELECT iteration, benchmark, metric, value, stderr, n FROM evaluations "
    "WHERE metric IN ('win_rate', 'length_controlled_win_rate', 'reward', 'expected_reward', 'kl', "
    "'kl_bound') ORDER BY iteration, benchmark, metric"
)


def optimisation_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return win-rate and proxy over steps, samples and rounds, and against one another."""
    rows = pl.concat([pl.DataFrame(schema=SCHEMA), *map(optimisation_rows, runs)])
    return ReportPlot(
        name="optimisation",
        title="How far optimising the reward pays",
        reading=(
            "The reward is what was optimised, the win-rate what it stands for: where the first "
            "rises and the second falls, the reward is over-optimised, and an earlier step or a "
            "smaller n is the better one; the bands are 95 % intervals over prompts."
        ),
        command=f'lpfloop sql "{SQL}" --run {names_of(runs)[0]}',
        rows=rows,
        panels=list(_panels(rows, several=len(runs) > 1)),
        missing=none_made(
            runs,
            "two points of a curve: that takes policies on the way (`publish_every`), best-of-n, "
            "or iterations, and their reward or win-rate",
        ),
    )


def optimisation_rows(run: RunReader) -> pl.DataFrame:
    """Return the points of a run, if at least two have the same kind of x."""
    found: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    told = run.scan("evaluations").filter(pl.col("metric").is_in(list(NAMED))).collect()
    for row in told.sort("iteration", "benchmark", "metric").to_dicts():
        place = _place(row["benchmark"], row["iteration"])
        if place is not None:
            _fill(found.setdefault((*place[:2], row["iteration"], place[2]), {}), row)
    _add_rollouts(run, found)
    splits = {(by, split) for by, split, _, _ in found}
    shown = [
        {"run": run.folder.name, "method": recipe_of(run), "by": by, "split": split}
        | {"iteration": iteration, "x": x, **figures}
        for (by, split, iteration, x), figures in found.items()
        if split == HELD_OUT or (by, HELD_OUT) not in splits
    ]
    rows = pl.DataFrame(shown, schema=SCHEMA)
    drawn = pl.col(WIN).is_not_null() | pl.col(REWARD).is_not_null()
    several = pl.len().over("by") >= FEWEST
    return rows.filter(drawn).filter(several).sort("by", "iteration", "x")


def _place(benchmark: str, iteration: int) -> tuple[str, str, int] | None:
    """Return the quantity on the x axis, the split, and x; None for other benchmarks."""
    step = step_of(benchmark)
    if step is not None:
        return (STEP, step[1], step[0]) if step[1] in (DEV, HELD_OUT) else None
    if benchmark.startswith(BEST_OF):
        return SAMPLES, HELD_OUT, int(benchmark.removeprefix(BEST_OF))
    return (ROUND, HELD_OUT, iteration) if benchmark == HELD_OUT else None


def _fill(figures: dict[str, Any], row: Mapping[str, Any]) -> None:
    name = NAMED[row["metric"]]
    figures.setdefault(name, row["value"])
    if name == WIN:
        figures["n"] = row["n"]
        interval = share_interval(row["value"], row["stderr"], row["n"])
        figures["low"], figures["high"] = interval or (None, None)


def _add_rollouts(run: RunReader, found: dict[tuple[str, str, int, int], dict[str, Any]]) -> None:
    """Give the policies of steps the reward and the KL of their rollouts, if theirs are missing."""
    if not any(by == STEP for by, *_ in found):
        return
    told = run.scan("statistics").filter(pl.col("metric").is_in([REWARD, KL])).collect()
    values = {
        (iteration, step, metric): value
        for iteration, step, metric, value in told.select(
            "iteration", "step", "metric", "value"
        ).iter_rows()
    }
    for (by, _, iteration, step), figures in found.items():
        if by == STEP:
            for metric in (REWARD, KL):
                figures.setdefault(metric, values.get((iteration, step, metric)))


def _panels(rows: pl.DataFrame, *, several: bool) -> Iterator[Panel]:
    for by, x_label in X_LABELS.items():
        own = rows.filter(by=by)
        if own.is_empty():
            continue
        for figure, y_label in ((WIN, "win-rate, %"), (REWARD, "reward")):
            series = [*_series(own, "x", figure, several=several)]
            if series:
                yield Lines(
                    series=series,
                    title=f"{y_label.partition(',')[0]} by {x_label}",
                    x_label=x_label,
                    y_label=y_label,
                    log_x=by == SAMPLES,
                    whole_x=by != SAMPLES,
                    level=EVEN if figure == WIN else None,
                )
    for x, x_label in ((KL, "KL to M_0, nats an answer"), (REWARD, "reward")):
        series = [*_series(rows, x, WIN, several=several)]
        if series:
            yield Lines(
                series=series,
                title=f"win-rate against {x_label.partition(',')[0]}",
                x_label=x_label,
                y_label="win-rate, %",
                level=EVEN,
            )


def _series(rows: pl.DataFrame, x: str, y: str, *, several: bool) -> Iterator[Series]:
    """Give a line for each run, kind of x, split and iteration of a training."""
    known = rows.drop_nulls([x, y])
    scale = 100.0 if y == WIN else 1.0
    own = pl.when(pl.col("by") == STEP).then("iteration").otherwise(0).alias("of")
    parts = known.with_columns(own).partition_by("run", "by", "split", "of", maintain_order=True)
    for part in parts:
        if part.height < FEWEST:
            continue
        run, method, by, split, of = part.select("run", "method", "by", "split", "of").row(0)
        label = ": ".join(dict.fromkeys([run, method])) if several else method
        label += f", M_{of}" if by == STEP and rows["iteration"].n_unique() > 1 else ""
        banded = y == WIN and not part["low"].null_count()
        yield Series(
            label=label + (f", {split} prompts" if split == DEV else ""),
            x=part[x].cast(pl.Float64).to_list(),
            y=(part[y] * scale).to_list(),
            low=(part["low"] * scale).to_list() if banded else (),
            high=(part["high"] * scale).to_list() if banded else (),
        )
