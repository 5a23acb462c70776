# pyright: basic
"""How ratings and rewards separate right from wrong answers, as in RLRF's Figures 2 and 3.

Distributions over each other, and the area under the ROC curve by iteration and aspect.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from ...stores.lake import RunReader
from ..data.splits import DEV, HELD_OUT
from ..evaluation.critic_check import VERIFIER, AnswerGroup
from ..evaluation.critic_report import distributions
from ..evaluation.plots import Histogram, Panel
from ..lake.query.critic_scores import DRAFTS, RATING, judged_by_verifier, verified_answers
from ..lake.statistics.clustered_estimates import number_clusters
from ..lake.statistics.roc_area import area_estimate
from .section import Section, over_iterations

ALL, REWARD = "all aspects", "reward"
NAMES = {"rating": "mean rating", REWARD: "reward"}
LIMIT = 2000
"""So many answers of an iteration at most: their ids are hashes, so the first are any."""
AREAS = {
    **dict.fromkeys(("benchmark", "aspect"), pl.String),
    **dict.fromkeys(("iteration", "n"), pl.Int64),
    **dict.fromkeys(("auroc", "low", "high"), pl.Float64),
}


def critic_section(run: RunReader) -> Section:
    """Return how well ratings and rewards separate right answers from wrong ones."""
    answers = _answers(run)
    areas = pl.DataFrame([*_areas(_by_aspect(run, answers))], schema=AREAS)
    bars = _distributions(answers)
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
        tables={"critic": areas, "ratings": bars},
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
        ],
        missing=(
            "no answer was both rated by a model and verified: nothing was evaluated, nothing can "
            "be verified, or the verifier itself is the critic"
        ),
    )


def _answers(run: RunReader) -> pl.DataFrame:
    """Return verified answers with their mean rating and reward, of one benchmark.

    It is held-out prompts, else dev prompts, else the drafts.
    """
    every = verified_answers(run, None)
    if judged_by_verifier(run):
        every = every.clear()
    there = set(every["benchmark"])
    chosen = next((name for name in (HELD_OUT, DEV, DRAFTS) if name in there), "")
    answers = every.filter(pl.col("benchmark") == chosen).sort("candidate_id")
    clusters = run.scan("prompts", columns={"prompt_id", "cluster"}).unique("prompt_id").collect()
    return (
        answers.group_by("iteration", maintain_order=True)
        .head(LIMIT)
        .join(clusters, on="prompt_id", how="left")
        .with_columns(pl.coalesce("cluster", "prompt_id"))
    )


def _by_aspect(run: RunReader, answers: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each aspect of each answer, for the mean, and for its reward."""
    key = ("iteration", "benchmark", "prompt_id", "candidate_id")
    place = (*key, "right", "cluster")
    ratings = (
        run.scan("scores")
        .filter(pl.col("metric").str.starts_with(RATING))
        .join(answers.lazy().select(place), on=key)
        .select(*place, "value", aspect=pl.col("metric").str.strip_prefix(RATING))
        .collect()
    )
    whole = answers.select(*place, value="rating", aspect=pl.lit(ALL))
    rewards = answers.select(*place, value="reward", aspect=pl.lit(REWARD)).drop_nulls("value")
    several = ratings["aspect"].n_unique() > 1
    rows = pl.concat([whole, rewards, *([ratings] if several else [])])
    return rows.sort("iteration", "aspect", "candidate_id")


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


def _distributions(answers: pl.DataFrame) -> pl.DataFrame:
    """Return how the values of right and wrong answers of the first and last model are spread."""
    made: list[int] = answers["iteration"].unique().sort().to_list()
    groups = [
        AnswerGroup(against=VERIFIER, names={"iteration": n}, there=own.height, frame=own)
        for n in dict.fromkeys([*made[:1], *made[-1:]])
        for own in [answers.filter(pl.col("iteration") == n)]
    ]
    return distributions(groups)


def _histograms(bars: pl.DataFrame) -> Iterator[Panel]:
    if bars.is_empty():
        return
    groups = bars.partition_by("score", "iteration", as_dict=True, maintain_order=True)
    for (score, iteration), own in groups.items():
        first = own.filter(right=own["right"][0])
        yield Histogram(
            edges=[*first["low"], first["high"][-1]],
            shares={
                f"{'right' if right else 'wrong'} ({part['count'].sum():,})": part[
                    "share"
                ].to_list()
                for (right,), part in own.group_by("right", maintain_order=True)
            },
            title=f"{NAMES[score].capitalize()} of M_{iteration}'s answers",
            x_label=NAMES[score],
        )
