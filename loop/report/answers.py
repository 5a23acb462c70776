# pyright: basic
"""How long answers are and how they repeat: by iteration, and chosen against rejected."""

from collections.abc import Iterator

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.plots import Heights, Histogram, Panel
from ..evaluation.style_alarms import REPETITION, STYLE
from .section import Section, over_iterations

BINS = 24
LONGEST = 0.99
"""The share of answers within the bins; the rest is in the last one."""
DRAWN = 5
"""So many iterations are drawn over each other: the first, and the latest."""
SIDES = ("chosen", "rejected")
SQL = "SELECT iteration, kind, completion_tokens, count(*) AS n FROM candidates GROUP BY ALL"


def answers_section(run: RunReader) -> Section:
    """Return the lengths of answers by iteration and side of the pairs, and their repetition."""
    lengths, style = length_rows(run), _style(run)
    means = lengths.group_by("iteration", "part").agg(
        mean=(pl.col("tokens") * pl.col("count")).sum() / pl.col("count").sum()
    )
    return Section(
        name="answers",
        title="Answers: length and repetition",
        reading=(
            "Answers that grow longer from iteration to iteration, or chosen ones that are longer "
            "or repeat more than rejected ones, show a policy that learns a manner rather than to "
            "be right."
        ),
        command=f'lpfloop sql "{SQL}" --run {run.folder.name}',
        tables={"answers": lengths, "repetition": style},
        panels=[
            *over_iterations(means, "part", "mean", title="Mean length", y_label="tokens"),
            *_histograms(lengths),
            *over_iterations(
                style, "part", "percent", title="Repetition within an answer", y_label="share, %"
            ),
        ],
        missing="no answer of the run says how many tokens it has",
    )


def length_rows(run: RunReader) -> pl.DataFrame:
    """Return how many answers of each iteration have so many tokens: of each kind and side."""
    columns = {"candidate_id", "iteration", "kind", "completion_tokens"}
    answers = run.scan("candidates", columns=columns).filter(pl.col("completion_tokens") > 0)
    sides = [
        run.scan("pairs", columns={"iteration", f"{side}_id"})
        .select("iteration", candidate_id=f"{side}_id", part=pl.lit(side))
        .join(answers.select("candidate_id", "completion_tokens"), on="candidate_id")
        for side in SIDES
    ]
    every = [answers.with_columns(part="kind"), *sides]
    counts = [
        rows.group_by("iteration", "part", tokens="completion_tokens").agg(count=pl.len())
        for rows in every
    ]
    return pl.concat(counts).sort("part", "iteration", "tokens").collect(engine="streaming")


def _style(run: RunReader) -> pl.DataFrame:
    """Return how much of its answers each policy repeats, and each side of its pairs."""
    return (
        run.scan("evaluations")
        .filter(pl.col("benchmark") == STYLE, pl.col("metric").str.ends_with(f":{REPETITION}"))
        .with_columns(
            part=pl.col("metric").str.split(":").list.first(), percent=100 * pl.col("value")
        )
        .filter(pl.col("part").is_in(["policy", *SIDES]))
        .select("iteration", "part", "percent")
        .sort("part", "iteration")
        .collect()
    )


def _histograms(rows: pl.DataFrame) -> Iterator[Panel]:
    if rows.is_empty():
        return
    counts = rows.sort("tokens").with_columns(share=pl.col("count").cum_sum() / rows["count"].sum())
    longest = int(counts.filter(pl.col("share") >= LONGEST)["tokens"][0])
    width = -(-(longest + 1) // BINS)
    place = (pl.col("tokens") // width).clip(0, longest // width)
    binned = rows.group_by("part", "iteration", bin=place).agg(pl.col("count").sum())
    drawn = binned.filter(~pl.col("part").is_in(SIDES))
    for (kind,), own in sorted(drawn.partition_by("part", as_dict=True).items()):
        numbers = sorted(own["iteration"].unique())
        some = numbers if len(numbers) <= DRAWN else [numbers[0], *numbers[1 - DRAWN :]]
        parts = {f"iteration {number}": own.filter(iteration=number) for number in some}
        yield _histogram(parts, width, f"{str(kind).capitalize()} answers")
    paired = binned.filter(pl.col("part").is_in(SIDES))
    if paired.height:
        last = paired.filter(iteration=paired["iteration"].max())
        parts = {side: last.filter(part=side) for side in SIDES}
        yield _histogram(parts, width, f"Pairs of iteration {last['iteration'][0]}")


def _histogram(parts: dict[str, pl.DataFrame], width: int, title: str) -> Panel:
    bins = 1 + max(place for part in parts.values() for place in part["bin"])
    heights = list[Heights]()
    for label, part in parts.items():
        found, total = dict(part.select("bin", "count").iter_rows()), max(1, part["count"].sum())
        values = [found.get(place, 0) / total for place in range(bins)]
        heights.append(Heights(label=label, values=values))
    edges = [width * place for place in range(bins + 1)]
    return Histogram(edges=edges, parts=heights, title=title, x_label="tokens")
