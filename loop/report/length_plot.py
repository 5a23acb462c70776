"""How long answers are and how they are written: by iteration, and chosen against rejected."""

from collections.abc import Iterator, Sequence

import polars as pl

from ...stores.lake import RunReader
from ..data.splits import HELD_OUT
from ..evaluation.panels import Heights, Histogram, Lines, Panel, Series
from ..evaluation.style_alarms import REPETITION, STYLE
from .report_plot import ReportPlot, names_of

BINS = 24
LONGEST = 0.99
"""The share of answers that a panel shows; the rest is in its last bin."""
DRAWN = 6
"""So many iterations are drawn over each other: the first, and the latest."""
SIDES = ("chosen", "rejected")
MISSING = "no answer of the run says how many tokens it has"
SQL = "SELECT iteration, kind, completion_tokens, count(*) AS n FROM candidates GROUP BY ALL"
SCHEMA = {
    "what": pl.String,
    "run": pl.String,
    "iteration": pl.Int64,
    "part": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    "count": pl.Float64,
    "value": pl.Float64,
}


def length_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the lengths of answers by iteration and side of the pairs, and their repetition."""
    parts = [part for run in runs for part in (*_lengths(run), _style(run))]
    rows = pl.concat([pl.DataFrame(schema=SCHEMA), *parts], how="diagonal_relaxed")
    several = len(runs) > 1
    return ReportPlot(
        name="length",
        title="Length and repetition",
        reading=(
            "Answers that grow longer from iteration to iteration, or chosen ones that are longer "
            "or repeat more than rejected ones, show a policy that learns a manner "
            "rather than to be right."
        ),
        command=f'lpfloop sql "{SQL}" --run {names_of(runs)[0]}',
        rows=rows,
        panels=[*(_over_runs(rows) if several else _panels(rows))],
        missing=MISSING,
    )


def _lengths(run: RunReader) -> Iterator[pl.DataFrame]:
    """Yield the lengths of each iteration's answers, and of each side of its pairs, with counts."""
    tokens = pl.col("completion_tokens")
    columns = {"candidate_id", "iteration", "kind", "completion_tokens"}
    answers = run.scan("candidates", columns=columns).filter(tokens > 0)
    drawn = (
        answers.group_by("iteration", "kind", "completion_tokens")
        .len()
        .collect(engine="streaming")
        .with_columns(part=pl.col("kind"))
    )
    if drawn.is_empty():
        return
    paired = [
        run.scan("pairs", columns={"iteration", f"{side}_id"})
        .select("iteration", candidate_id=f"{side}_id")
        .join(answers.drop("iteration"), on="candidate_id")
        .group_by("iteration", "completion_tokens")
        .len()
        .collect(engine="streaming")
        .with_columns(part=pl.lit(side))
        for side in SIDES
    ]
    every = pl.concat([drawn, *paired], how="diagonal_relaxed")
    yield _binned(every, run.folder.name)
    yield _means(every, run.folder.name)


def _binned(counts: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return how many answers fall into each bin of length."""
    number, tokens = pl.col("len"), pl.col("completion_tokens")
    most = counts.sort(tokens).filter(number.cum_sum() >= LONGEST * number.sum())
    longest = int(most["completion_tokens"].to_list()[0])
    width = max(1, -(-(longest + 1) // BINS))
    place = (tokens // width).clip(0, longest // width)
    return (
        counts.with_columns(low=(place * width).cast(pl.Float64))
        .group_by("iteration", "part", "low")
        .agg(count=number.sum().cast(pl.Float64))
        .with_columns(what=pl.lit("length"), run=pl.lit(run), high=pl.col("low") + width)
        .select("what", "run", "iteration", "part", "low", "high", "count")
        .sort("part", "iteration", "low")
    )


def _means(counts: pl.DataFrame, run: str) -> pl.DataFrame:
    tokens, number = pl.col("completion_tokens"), pl.col("len")
    return (
        counts.group_by("iteration", "part")
        .agg(
            count=number.sum().cast(pl.Float64),
            value=(tokens * number).sum() / number.sum(),
        )
        .with_columns(what=pl.lit("mean"), run=pl.lit(run))
        .select("what", "run", "iteration", "part", "count", "value")
        .sort("part", "iteration")
    )


def _style(run: RunReader) -> pl.DataFrame:
    """Return the figures of length and repetition that the run's watch has stored."""
    return (
        run.scan("evaluations")
        .filter(pl.col("benchmark") == STYLE)
        .select(
            "iteration",
            "value",
            what=pl.lit(STYLE),
            run=pl.lit(run.folder.name),
            part=pl.col("metric"),
        )
        .sort("iteration", "part")
        .collect()
    )


def _panels(rows: pl.DataFrame) -> Iterator[Panel]:
    lengths = rows.filter(pl.col("what") == "length")
    drawn = lengths.filter(~pl.col("part").is_in(SIDES))
    for (kind,), own in drawn.partition_by("part", as_dict=True, maintain_order=True).items():
        title = f"{kind} answers" + (f", {HELD_OUT} and dev" if kind == "greedy" else "")
        yield _histogram(_some(own), "iteration", title, "iteration {}")
    paired = lengths.filter(pl.col("part").is_in(SIDES))
    if paired.height:
        last = paired["iteration"].max()
        own = paired.filter(pl.col("iteration") == last)
        yield _histogram(own, "part", f"pairs of iteration {last}", "{}")
    yield from _repetition(rows.filter(pl.col("what") == STYLE))


def _some(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first iteration and the latest ones."""
    numbers = rows["iteration"].unique().sort().to_list()
    kept = numbers if len(numbers) <= DRAWN else [numbers[0], *numbers[1 - DRAWN :]]
    return rows.filter(pl.col("iteration").is_in(kept))


def _histogram(rows: pl.DataFrame, part: str, title: str, label: str) -> Panel:
    width = rows["high"][0] - rows["low"][0]
    bins = int(max(rows["high"].to_list()) / width)
    groups = rows.partition_by(part, as_dict=True, maintain_order=True)
    return Histogram(
        edges=[width * n for n in range(bins + 1)],
        parts=[_part(label.format(n), own, width, bins) for (n,), own in sorted(groups.items())],
        title=title,
        x_label="tokens",
        y_label="share of each",
    )


def _part(label: str, rows: pl.DataFrame, width: float, bins: int) -> Heights:
    found = {int(low / width): count for low, count in rows.select("low", "count").iter_rows()}
    total = sum(found.values())
    return Heights(label=label, values=[found.get(n, 0.0) / total for n in range(bins)])


def _repetition(rows: pl.DataFrame) -> Iterator[Panel]:
    """Give how much of its answers each policy repeats, and each side of its pairs."""
    of = {
        (t, part): 100 * value
        for t, part, value in rows.select("iteration", "part", "value").iter_rows()
    }
    numbers = sorted({t for t, _ in of})
    if not numbers:
        return
    initial = of.get((numbers[0], f"initial:{REPETITION}"), 0.0)
    lines = list[Series]()
    for side in ("policy", *SIDES):
        known = [t for t in numbers if (t, f"{side}:{REPETITION}") in of]
        values = [of[t, f"{side}:{REPETITION}"] for t in known]
        if side == "policy":
            lines.append(Series(label=side, x=[numbers[0] - 1, *known], y=[initial, *values]))
        elif known:
            lines.append(Series(label=side, x=known, y=values))
    yield Lines(
        series=lines,
        title="repetition within an answer",
        x_label="iteration",
        y_label="share, %",
        whole_x=True,
    )


def _over_runs(rows: pl.DataFrame) -> Iterator[Panel]:
    """Give the mean length of each kind of answers, a line for each run."""
    means = rows.filter(pl.col("what") == "mean")
    for (kind,), own in means.partition_by("part", as_dict=True, maintain_order=True).items():
        groups = own.partition_by("run", as_dict=True, maintain_order=True)
        yield Lines(
            series=[
                Series(label=str(name), x=part["iteration"].to_list(), y=part["value"].to_list())
                for (name,), part in groups.items()
            ],
            title=f"{kind} answers",
            x_label="iteration",
            y_label="mean tokens",
            whole_x=True,
        )
