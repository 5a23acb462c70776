# pyright: basic
"""FActScore by iteration, split, kind of answers and judge, from the statements that are stored.

A run's own judge and people whose labels were imported have a row each.
"""

from collections.abc import Iterator
from statistics import fmean

import polars as pl

from ....critics.facts.fact_score import FACT_SCORE, Metrics, fact_metrics
from ....stores.lake import RunReader
from ..statistics.clustered_error import mean_error
from ..statistics.share_interval import share_interval

BY = ["iteration", "split", "kind", "judge"]
COUNTS = ("facts_supported", "facts_not_supported", "facts_irrelevant", "facts_unread")
SCHEMA = {
    "iteration": pl.Int64(),
    "split": pl.String(),
    "kind": pl.String(),
    "judge": pl.String(),
    "answers": pl.Int64(),
    "abstained": pl.Int64(),
    "fact_score": pl.Float64(),
    "stderr": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    **dict.fromkeys(COUNTS, pl.Int64()),
}


def fact_figures(run: RunReader, iteration: int | None = None) -> pl.LazyFrame:
    """Return a row for each iteration, kind of answers and judge, with the counts behind it."""
    answers = _answers(run, iteration).partition_by(BY, maintain_order=True)
    return pl.DataFrame([_figures(part) for part in answers], schema=SCHEMA).lazy()


def _answers(run: RunReader, iteration: int | None) -> pl.DataFrame:
    """Return a row for each answer that somebody broke up: its passages, and what is said."""
    keys = ["candidate_id", "iteration", "prompt_id"]
    broken = run.scan("breakdowns", iteration=iteration).group_by(keys)
    said = run.scan("claims", iteration=iteration).group_by(*keys, "judge")
    kinds = run.scan("candidates", iteration=iteration, columns={"candidate_id", "kind"})
    prompts = run.scan("prompts", columns={"prompt_id", "split", "cluster"})
    return (
        broken.agg(
            pl.col("judge").first().alias("broken_by"),
            passages=pl.struct("status", pl.col("statements").list.len()),
        )
        .join(said.agg(said=pl.struct("verdict", "status")), on=keys, how="left")
        .with_columns(judge=pl.coalesce("judge", "broken_by"))
        .join(kinds.unique("candidate_id"), on="candidate_id")
        .join(prompts.unique("prompt_id"), on="prompt_id")
        .with_columns(pl.coalesce("cluster", "prompt_id"))
        .sort(*BY, "candidate_id")
        .collect()
    )


def _figures(answers: pl.DataFrame) -> dict[str, object]:
    metrics = [dict(found) for found in _metrics(answers)]
    told = zip(metrics, answers["cluster"], strict=True)
    scored = [(found[FACT_SCORE], cluster) for found, cluster in told if FACT_SCORE in found]
    scores = [score for score, _ in scored]
    error = mean_error(scores, [cluster for _, cluster in scored])
    within = share_interval(fmean(scores), error, len(scores)) if scores else None
    return {
        **{name: answers[name][0] for name in BY},
        "answers": answers.height,
        "abstained": int(sum(found.get("abstained", 0.0) for found in metrics)),
        "fact_score": fmean(scores) if scores else None,
        "stderr": error,
        "low": within and within[0],
        "high": within and within[1],
        "n": len(scores),
        **{name: int(sum(found.get(name, 0.0) for found in metrics)) for name in COUNTS},
    }


def _metrics(answers: pl.DataFrame) -> Iterator[Metrics]:
    for passages, said in answers.select("passages", "said").iter_rows():
        yield fact_metrics(
            [(one["status"], one["statements"]) for one in passages],
            [(one["verdict"], one["status"]) for one in said or ()],
        )
