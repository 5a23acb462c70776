# pyright: basic
"""How ratings and rewards separate right from wrong answers, as in RLRF's Figures 2 and 3.

Distributions over each other, the area under the ROC curve by iteration and aspect, and the shares
of judges' replies that could not be read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from ...critics.status import WAS_READ
from ...stores.lake import RunReader
from ..data.judged_candidates import is_trusted
from ..data.splits import DEV, HELD_OUT
from ..evaluation.plots import Heights, Histogram, Panel
from ..lake.query.critic_scores import DRAFTS, RATING, judged_by_verifier, verified_answers
from ..lake.query.runs import of_loop
from ..lake.statistics.clustered_estimates import number_clusters
from ..lake.statistics.roc_area import area_estimate
from .section import Section, over_iterations

ALL, REWARD = "all aspects", "reward"
NAMES = {ALL: "mean rating", REWARD: "reward"}
LIMIT = 2000
"""So many answers of an iteration at most: their ids are hashes, so the first are any."""
BINS = {ALL: 9, REWARD: 20}
JUDGES = {"critiques": "critic", "grades": "annotator", "preferences": "annotator"}
"""The tables of judgments, and the column of their judge."""
AREAS = {
    **dict.fromkeys(("benchmark", "aspect"), pl.String),
    **dict.fromkeys(("iteration", "n"), pl.Int64),
    **dict.fromkeys(("auroc", "low", "high"), pl.Float64),
}


def critic_section(run: RunReader) -> Section:
    """Return how well ratings and rewards separate right answers from wrong ones."""
    answers = _rated_answers(run)
    areas = pl.DataFrame([*_areas(answers)], schema=AREAS)
    bars = pl.DataFrame([*_distributions(answers)], infer_schema_length=None)
    unread = _unread(run)
    whole = pl.col("aspect").is_in([ALL, REWARD])
    area: Any = {"y_label": "AUROC, %", "level": 50.0}
    return Section(
        name="critic",
        title="Critic: ratings and rewards of right and wrong answers",
        reading=(
            "An AUROC of 100 % means that every right answer is rated above every wrong one; 50 % "
            "is chance. If the two colours overlap, the critic cannot tell right from wrong. If a "
            "line falls, the policy may be learning to please the critic."
        ),
        command=f"lpfloop critic-check {run.folder.name} --by iteration,aspect --distributions",
        tables={"critic": areas, "ratings": bars, "unread": unread},
        panels=[
            *over_iterations(
                areas.filter(whole),
                "aspect",
                "auroc",
                title=f"Ratings and reward, {answers['benchmark'][0]}" if answers.height else "",
                band=("low", "high"),
                **area,
            ),
            *over_iterations(
                areas.filter(~whole), "aspect", "auroc", title="Ratings of each aspect", **area
            ),
            *_histograms(bars),
            *over_iterations(
                unread, "name", "percent", title="Replies not read", y_label="% of replies"
            ),
        ],
        missing=(
            "no answer was both rated by a model and verified: nothing was evaluated, nothing can "
            "be verified, or the verifier itself is the critic"
        ),
    )


def _rated_answers(run: RunReader) -> pl.DataFrame:
    """Return a row for each aspect of each verified answer, for the mean, and for its reward.

    The answers are those of one benchmark: held-out, else dev, else the drafts.
    """
    place = ("iteration", "benchmark", "prompt_id", "candidate_id")
    columns: list[str] = [*place, "aspect", "right", "value", "cluster"]
    if judged_by_verifier(run):
        return pl.DataFrame(schema=columns)
    every = verified_answers(run, None)
    parts = {
        str(name): own for (name,), own in every.partition_by("benchmark", as_dict=True).items()
    }
    answers = next((parts[name] for name in (HELD_OUT, DEV, DRAFTS) if name in parts), None)
    if answers is None:
        return pl.DataFrame(schema=columns)
    some = answers.sort("candidate_id").group_by("iteration", maintain_order=True).head(LIMIT)
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
    rows = pl.concat([whole, rewards.drop_nulls("value"), *([ratings] if several else [])])
    clusters = run.scan("prompts", columns={"prompt_id", "cluster"}).unique("prompt_id").collect()
    return (
        rows.join(clusters, on="prompt_id", how="left")
        .with_columns(pl.coalesce("cluster", "prompt_id"))
        .sort("iteration", "aspect", "candidate_id")
    )


def _areas(answers: pl.DataFrame) -> Iterator[dict[str, Any]]:
    groups = answers.partition_by("benchmark", "iteration", "aspect", as_dict=True)
    for (benchmark, iteration, aspect), own in groups.items():
        found = area_estimate(
            own["value"].to_numpy().astype(np.float64),
            own["right"].to_numpy(),
            number_clusters(own["cluster"].to_list()),
        )
        row = {"benchmark": benchmark, "iteration": iteration, "aspect": aspect, "n": own.height}
        if found is not None:
            ends = (found.value if end is None else end for end in (found.low, found.high))
            low, high = (100 * end for end in ends)
            yield row | {"auroc": 100 * found.value, "low": low, "high": high}


def _distributions(answers: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Give how the values of right and wrong answers of the first and last model are spread."""
    ends = dict.fromkeys((answers["iteration"].min(), answers["iteration"].max()))
    for aspect, count in BINS.items():
        own = answers.filter(pl.col("aspect") == aspect)
        edges = np.histogram_bin_edges(own["value"].to_numpy(), bins=count) if own.height else []
        for iteration in ends if own.height else ():
            for right in (True, False):
                which = (pl.col("iteration") == iteration) & (pl.col("right") == right)
                counts = np.histogram(own.filter(which)["value"].to_numpy(), bins=edges)[0]
                for low, high, number in zip(edges[:-1], edges[1:], counts, strict=True):
                    row = {"iteration": iteration, "aspect": aspect, "right": right}
                    yield row | {"low": float(low), "high": float(high), "count": int(number)}


def _histograms(bars: pl.DataFrame) -> Iterator[Panel]:
    if bars.is_empty():
        return
    groups = bars.partition_by("aspect", "iteration", as_dict=True, maintain_order=True)
    for (aspect, iteration), own in groups.items():
        right, wrong = own.filter("right"), own.filter(~pl.col("right"))
        yield Histogram(
            edges=[*right["low"], right["high"][-1]],
            parts=[_shares("right", right["count"]), _shares("wrong", wrong["count"])],
            title=f"{NAMES[aspect].capitalize()} of M_{iteration}'s answers",
            x_label=NAMES[aspect],
        )


def _shares(label: str, counts: pl.Series) -> Heights:
    total = counts.sum()
    return Heights(label=f"{label} ({total:,})", values=(counts / max(1, total)).to_list())


def _unread(run: RunReader) -> pl.DataFrame:
    """Return the share of each iteration's replies by models that were not read, by reason."""
    parts: Sequence[pl.LazyFrame] = [
        of_loop(run, table, columns={"iteration", "status", judge})
        .filter(~is_trusted(judge))
        .group_by("iteration", "status")
        .len()
        .select("iteration", "status", "len", table=pl.lit(table))
        for table, judge in JUDGES.items()
    ]
    total = pl.col("len").sum().over("table", "iteration")
    return (
        pl.concat(parts)
        .with_columns(percent=100 * pl.col("len") / total, replies=total)
        .filter(~pl.col("status").is_in(list(WAS_READ)))
        .select("iteration", "percent", "replies", name=pl.format("{}: {}", "table", "status"))
        .sort("iteration", "name")
        .collect(engine="streaming")
    )
