# pyright: basic
"""Over-optimisation: proxy rewards against the measures that they stand for.

AlpacaFarm's Figures 5, 12 and 13, from a run's rows alone: the win-rate and the reward over steps,
n of best-of-n and iterations, proxies against verified success or the win-rate, and length.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ...stores.lake import RunReader
from ..data.splits import DEV, HELD_OUT
from ..data.stage_names import step_of
from ..evaluation.plots import Lines, Panel, Series
from ..lake.query.figures import LENGTH, figure_values, shown_split
from ..lake.query.format_figures import figure_label, figure_name, scale_value
from ..lake.query.policy_figures import APPROVAL, VERIFIED, WIN_RATE
from ..lake.statistics.intervals import share_interval
from .section import Section

TARGETS = (VERIFIED, WIN_RATE)
"""The figures that proxies stand for; the first that was measured counts."""
PROXIES = (APPROVAL, "reward", WIN_RATE, "kl", LENGTH)
STEP, SAMPLES, ROUND = "step", "samples", "iteration"
X_LABELS: Mapping[str, str] = {STEP: "step", SAMPLES: "n of best-of-n", ROUND: "iteration"}
BEST_OF = "best-of-"
WIN, REWARD, KL = "win_rate", "reward", "kl"
NAMED = {WIN: WIN, REWARD: REWARD, "expected_reward": REWARD, KL: KL, "kl_bound": KL}
"""The figures of a point, by the metrics that may hold them."""
EVEN = 50.0
FEWEST = 2
"""A line needs at least so many points."""
CURVES: Mapping[str, Any] = {
    **dict.fromkeys(("run", "method", "by", "split"), pl.String),
    **dict.fromkeys(("iteration", "x"), pl.Int64),
    **dict.fromkeys((WIN, "low", "high", REWARD, KL), pl.Float64),
    "n": pl.Int64,
}
PAIRED = {
    **dict.fromkeys(("scope", "name", "proxy", "target"), pl.String),
    "iteration": pl.Int64,
    **dict.fromkeys(("x", "y"), pl.Float64),
    "n": pl.UInt32,
}
SQL = (
    "SELECT iteration, benchmark, metric, value, stderr, n FROM evaluations "
    "WHERE metric IN ('win_rate', 'reward', 'expected_reward', 'kl', 'kl_bound', 'mean_length')"
)


def over_optimisation_section(run: RunReader) -> Section:
    """Return the curves of the proxy rewards, and each against the measure it stands for."""
    curves, proxies = curve_rows(run), proxy_rows(run)
    return Section(
        name="over-optimisation",
        title="Over-optimisation: proxy rewards against true quality",
        reading=(
            "Follow a line from dot to dot, an iteration each, to the one that is named: a line "
            "that runs to the right without rising is a policy that learns to please its judge, or "
            "to write more; below the diagonal the critic approves more than is right. Where a "
            "reward rises over steps or samples and the win-rate falls, an earlier step or a "
            "smaller n is the better one."
        ),
        command=f'lpfloop sql "{SQL}" --run {run.folder.name}',
        tables={"proxies": proxies, "curves": curves},
        panels=[*_proxy_panels(proxies), *curve_panels(curves)],
        missing="no model was both judged and verified, and no curve has two points",
    )


def proxy_rows(run: RunReader) -> pl.DataFrame:
    """Return the means `x` of each proxy and `y` of its target over the prompts that have both."""
    empty = pl.DataFrame(schema=PAIRED)
    split = shown_split(run)
    values = empty if split is None else figure_values(run, split)
    measured = set(values["figure"]) if values.height else set[str]()
    targets = [target for target in TARGETS if target in measured][:1]
    pairs = [(proxy, target) for target in targets for proxy in PROXIES if proxy != target]
    if WIN_RATE in measured and WIN_RATE not in targets:
        pairs.append((LENGTH, WIN_RATE))
    place, found = ("prompt_id", "iteration"), [empty]
    scopes = (("all", pl.lit("all")), ("task", pl.col("task")))
    for proxy, target in pairs:
        aim = values.filter(figure=target).select(*place, y="value")
        both = values.filter(figure=proxy).join(aim, on=place)
        found += [
            both.with_columns(name=name, scope=pl.lit(scope))
            .drop_nulls("name")
            .group_by("scope", "name", "iteration")
            .agg(pl.col("y").mean(), x=pl.col("value").mean(), n=pl.len())
            .with_columns(proxy=pl.lit(proxy), target=pl.lit(target))
            .select(*PAIRED)
            .sort("name", "iteration")
            for scope, name in scopes
        ]
    return pl.concat(found)


def _proxy_panels(rows: pl.DataFrame) -> Iterator[Panel]:
    groups = rows.partition_by("proxy", "target", as_dict=True, maintain_order=True)
    for (proxy, target), own in groups.items():
        tasks = own.filter(scope="task")
        whole = own.filter(scope="all")
        drawn = pl.concat([whole, tasks]) if tasks["name"].n_unique() > 1 else whole
        title = f"{figure_name(target).capitalize()} against {figure_name(proxy)}"
        yield _proxy_panel(drawn, title)


def _proxy_panel(rows: pl.DataFrame, title: str) -> Panel:
    proxy, target = rows.select("proxy", "target").row(0)
    groups = rows.partition_by("name", as_dict=True, maintain_order=True)
    return Lines(
        series=[
            Series(
                label=str(name),
                x=[scale_value(proxy, x) for x in own["x"]],
                y=[scale_value(target, y) for y in own["y"]],
                names=[*[""] * (own.height - 1), f"M_{own['iteration'][-1]}"],
            )
            for (name,), own in groups.items()
        ],
        title=title,
        x_label=figure_label(proxy),
        y_label=figure_label(target),
        diagonal=proxy == APPROVAL,
    )


def curve_rows(run: RunReader) -> pl.DataFrame:
    """Return the points of a run's curves, if at least two have the same kind of x.

    A point is a policy that PPO or Quark published at a step, the best of n samples, or the policy
    of an iteration. Its reward is the mean of its answers'; if a run trains its reward model
    itself, the mean reward of the step's rollouts.
    """
    found: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    evaluations = run.scan("evaluations").filter(pl.col("metric").is_in(list(NAMED))).collect()
    for row in evaluations.sort("iteration", "benchmark", "metric").to_dicts():
        place = _place(row["benchmark"], row["iteration"])
        if place is not None:
            _fill(found.setdefault((*place[:2], row["iteration"], place[2]), {}), row)
    _add_rollouts(run, found)
    splits = {(by, split) for by, split, _, _ in found}
    config = json.loads(run.journal.meta("config") or "{}")
    method = str(config.get("recipe", {}).get("name", "unnamed"))
    shown = [
        {"run": run.folder.name, "method": method, "by": by, "split": split}
        | {"iteration": iteration, "x": x, **figures}
        for (by, split, iteration, x), figures in found.items()
        if split == HELD_OUT or (by, HELD_OUT) not in splits
    ]
    rows = pl.DataFrame(shown, schema=CURVES)
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
    statistics = run.scan("statistics").filter(pl.col("metric").is_in([REWARD, KL])).collect()
    values = {
        (iteration, step, metric): value
        for iteration, step, metric, value in statistics.select(
            "iteration", "step", "metric", "value"
        ).iter_rows()
    }
    for (by, _, iteration, step), figures in found.items():
        if by == STEP:
            for metric in (REWARD, KL):
                figures.setdefault(metric, values.get((iteration, step, metric)))


def curve_panels(rows: pl.DataFrame) -> Iterator[Panel]:
    """Give the panels of one or more runs' curves: by each kind of x, and against one another."""
    for by, x_label in X_LABELS.items():
        own = rows.filter(by=by)
        for figure in (WIN, REWARD):
            yield from _curve_panel(own, "x", figure, x_label, by=by)
    for x, x_label in ((KL, "KL to M_0, nats an answer"), (REWARD, "reward")):
        yield from _curve_panel(rows, x, WIN, x_label)


def _curve_panel(
    rows: pl.DataFrame, x: str, figure: str, x_label: str, *, by: str = ""
) -> Iterator[Panel]:
    series = [*_series(rows, x, figure)]
    if series:
        yield Lines(
            series=series,
            title=f"{figure_name(figure).capitalize()} over {x_label.partition(',')[0]}",
            x_label=x_label,
            y_label=figure_label(figure),
            log_x=by == SAMPLES,
            whole_x=by in (STEP, ROUND),
            level=EVEN if figure == WIN else None,
        )


def _series(rows: pl.DataFrame, x: str, y: str) -> Iterator[Series]:
    """Give a line for each run, kind of x, split and iteration of a training."""
    several = rows["run"].n_unique() > 1
    own = pl.when(pl.col("by") == STEP).then("iteration").otherwise(0).alias("of")
    parts: Sequence[pl.DataFrame] = (
        rows.drop_nulls([x, y])
        .with_columns(own)
        .partition_by("run", "by", "split", "of", maintain_order=True)
    )
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
            y=[scale_value(y, value) for value in part[y]],
            low=[scale_value(y, value) for value in part["low"]] if banded else (),
            high=[scale_value(y, value) for value in part["high"]] if banded else (),
        )
