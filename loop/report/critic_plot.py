"""How ratings and rewards separate right from wrong answers: by iteration, aspect and reference.

As RLRF's Figures 2 and 3: distributions over each other, and the area under the ROC curve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ...stores.lake import RunReader
from ..data.splits import DEV, HELD_OUT
from ..evaluation.panels import Heights, Histogram, Lines, Panel, Series
from ..lake.query.critic_scores import DRAFTS, RATING, judged_by_verifier, verified_answers
from .reference_effect import auroc_of, both_ways, reference_panels
from .report_plot import ReportPlot, names_of
from .run_rows import with_clusters

ALL, REWARD = "all aspects", "reward"
LIMIT = 2000
"""So many answers of an iteration at most: their ids are hashes, so the first are any."""
RATING_BINS, REWARD_BINS = 9, 20
MISSING = (
    "no answer was both rated by a model and verified: nothing was evaluated, nothing can be "
    "verified, or the verifier itself is the critic"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedRun:
    """A run's rated and verified answers to the prompts of one benchmark."""

    name: str
    benchmark: str
    answers: pl.DataFrame


def critic_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of how well ratings and rewards separate right answers from wrong ones."""
    rated = [each for run in runs if (each := _rated(run)) is not None]
    areas = [row for each in rated for row in _areas(each)]
    alone = rated[0] if len(rated) == 1 else None
    bars = [] if alone is None else [*_distributions(alone)]
    ways = [row for run in runs for row in both_ways(run)] if alone is not None else []
    command = f"critic-check {names_of(runs)[0]}"
    asked = f"`lpfloop {command} --without-reference 200` asks the critic again about some answers"
    return ReportPlot(
        name="critic",
        title="Ratings and rewards of right and wrong answers",
        reading=(
            "An AUROC of 100 % means that every right answer is rated above every wrong one, 50 % "
            "is a coin's: where the two colours lie over each other the loop cannot learn what is "
            "right; a line that falls is a critic that is being pleased."
        ),
        command=f"lpfloop {command} --by iteration,aspect --distributions",
        rows=_rows(areas, bars, ways),
        panels=[*_lines(areas, several=alone is None), *_histograms(bars), *reference_panels(ways)],
        missing=MISSING,
        notes=[] if ways or alone is None else [f"{asked}; then this shows both ways."],
    )


def _rated(run: RunReader) -> RatedRun | None:
    """Return a run's answers of the best benchmark: held-out, else dev, else drafts."""
    if judged_by_verifier(run):
        return None
    answers = verified_answers(run, None)
    for benchmark in (HELD_OUT, DEV, DRAFTS):
        own = answers.filter(pl.col("benchmark") == benchmark)
        if own.height:
            return RatedRun(name=run.folder.name, benchmark=benchmark, answers=_by_aspect(run, own))
    return None


def _by_aspect(run: RunReader, answers: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each aspect, for all of them, and for the reward of some answers."""
    some = answers.sort("candidate_id").group_by("iteration", maintain_order=True).head(LIMIT)
    place = ("iteration", "benchmark", "prompt_id", "candidate_id")
    ratings = (
        run.scan("scores")
        .filter(pl.col("metric").str.starts_with(RATING))
        .join(some.lazy().select(*place, "right"), on=place)
        .select(*place, "right", "value", aspect=pl.col("metric").str.strip_prefix(RATING))
        .collect()
    )
    whole = some.select(*place, "right", value="rating", aspect=pl.lit(ALL))
    rewards = some.select(*place, "right", value="reward", aspect=pl.lit(REWARD))
    several = ratings["aspect"].n_unique() > 1
    parts = [whole, rewards.drop_nulls("value"), *([ratings] if several else [])]
    return with_clusters(run, pl.concat(parts)).sort("iteration", "aspect", "candidate_id")


def _areas(rated: RatedRun) -> Iterator[dict[str, object]]:
    groups = rated.answers.partition_by("iteration", "aspect", as_dict=True)
    for (iteration, aspect), own in groups.items():
        yield {
            "what": "auroc",
            "run": rated.name,
            "benchmark": rated.benchmark,
            "iteration": iteration,
            "aspect": aspect,
            **auroc_of(own),
        }


def _distributions(rated: RatedRun) -> Iterator[dict[str, object]]:
    """Give how the values of right and wrong answers of the first and last model are spread."""
    answers = rated.answers.filter(pl.col("aspect").is_in([ALL, REWARD]))
    ends = dict.fromkeys((answers["iteration"].min(), answers["iteration"].max()))
    for aspect, count in ((ALL, RATING_BINS), (REWARD, REWARD_BINS)):
        own = answers.filter(pl.col("aspect") == aspect)
        if own.is_empty():
            continue
        edges = np.histogram_bin_edges(own["value"].to_numpy(), bins=count)
        for iteration in ends:
            for right in (True, False):
                which = (pl.col("iteration") == iteration) & (pl.col("right") == right)
                values = own.filter(which)["value"].to_numpy()
                counts = np.histogram(values, bins=edges)[0]
                for low, high, number in zip(edges[:-1], edges[1:], counts, strict=True):
                    yield {
                        "what": "distribution",
                        "run": rated.name,
                        "benchmark": rated.benchmark,
                        "iteration": iteration,
                        "aspect": aspect,
                        "right": right,
                        "low": float(low),
                        "high": float(high),
                        "count": int(number),
                    }


def _rows(*parts: Sequence[dict[str, object]]) -> pl.DataFrame:
    found = [row for part in parts for row in part]
    return pl.DataFrame(found, infer_schema_length=None)


def _lines(areas: Sequence[dict[str, object]], *, several: bool) -> Iterator[Panel]:
    """Give the areas over the iterations: by aspect of one run, by run of several."""
    frame = _rows([row for row in areas if row["auroc"] is not None])
    if frame.is_empty():
        return
    if several:
        for aspect in (ALL, REWARD):
            own = frame.filter(pl.col("aspect") == aspect)
            if own.height:
                yield _panel(own, "run", aspect)
        return
    yield _panel(
        frame.filter(pl.col("aspect").is_in([ALL, REWARD])), "aspect", "ratings and reward"
    )
    aspects = frame.filter(~pl.col("aspect").is_in([ALL, REWARD]))
    if aspects.height:
        yield _panel(aspects, "aspect", "each aspect's ratings", banded=False)


def _panel(frame: pl.DataFrame, part: str, title: str, *, banded: bool = True) -> Panel:
    groups = frame.sort("iteration").partition_by(part, as_dict=True, maintain_order=True)
    return Lines(
        series=[
            Series(
                label=str(name),
                x=own["iteration"].to_list(),
                y=own["auroc"].to_list(),
                low=own["auroc_low"].fill_null(own["auroc"]).to_list() if banded else (),
                high=own["auroc_high"].fill_null(own["auroc"]).to_list() if banded else (),
            )
            for (name,), own in sorted(groups.items())
        ],
        title=title,
        x_label="iteration",
        y_label=f"AUROC, %, {frame['benchmark'][0]}",
        level=50.0,
        whole_x=True,
    )


def _histograms(bars: Sequence[dict[str, object]]) -> Iterator[Panel]:
    if not bars:
        return
    groups = _rows(bars).partition_by("aspect", "iteration", as_dict=True, maintain_order=True)
    for (aspect, iteration), own in groups.items():
        sides = [(said, own.filter(pl.col("right") == right)) for said, right in _SIDES]
        edges = sides[0][1]
        what = "reward" if aspect == REWARD else "mean rating"
        yield Histogram(
            edges=[*edges["low"], edges["high"][-1]],
            parts=[_shares(said, side["count"]) for said, side in sides],
            title=f"{what} of M_{iteration}'s answers",
            x_label=what,
            y_label="share of each",
        )


_SIDES = (("right", True), ("wrong", False))


def _shares(said: str, counts: pl.Series) -> Heights:
    total = counts.sum()
    return Heights(label=f"{said} ({total:,})", values=(counts / max(1, total)).to_list())
