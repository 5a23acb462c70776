# pyright: basic
"""Measures of runs for the studies of AlpacaFarm and UltraFeedback.

`true_score` is the hidden score of the tiny world's human.
"""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean

import polars as pl

from lpfloop.loop.evaluation.assess import TRUE_SCORE
from lpfloop.loop.evaluation.best_of_n import EXPECTED
from lpfloop.loop.evaluation.compare_runs import BEST_OF
from lpfloop.loop.evaluation.length_control import WIN_RATE
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.tiny.human import score
from lpfloop.stores.lake import RunReader

NAME_OF_N = rf"^{BEST_OF}-(\d+)$"
FEWEST_POINTS = 2
Curve = Mapping[float, float]
"""A figure at each n of best-of-n, or at each step."""


def expected_of_n(run: RunReader, metric: str) -> Curve:
    """Return the expectation of a metric of the best of n, by n."""
    return by_n(run.scan("evaluations").filter(pl.col("metric") == EXPECTED + metric).collect())


def win_rate_of_n(run: RunReader) -> Curve:
    """Return the win-rate of the best of n over the reference, by n, in percent."""
    rows = run.scan("scores").filter(pl.col("metric") == WIN_RATE).collect()
    return {n: 100 * value for n, value in by_n(rows).items()}


def by_n(rows: pl.DataFrame) -> Curve:
    """Return the mean value of each benchmark of best-of-n, by n.

    Raises:
        NotMeasuredError: if the rows contain no best-of-n.
    """
    of_n = rows.with_columns(n=pl.col("benchmark").str.extract(NAME_OF_N).cast(pl.Float64))
    means = of_n.drop_nulls("n").group_by("n").agg(pl.col("value").mean()).sort("n")
    if means.is_empty():
        raise NotMeasuredError("the best of n was not measured: the run has sampled nothing")
    return dict(means.select("n", "value").iter_rows())


def rollout_scores(run: RunReader) -> pl.DataFrame:
    """Return each rollout's step, its reward, and its hidden score as `true_score`."""
    rollouts = run.scan("rollouts").select("step", "candidate_id", "prompt_id", "reward")
    texts = run.scan("candidates").select("candidate_id", "text").unique("candidate_id")
    prompts = run.scan("prompts").select("prompt_id", "messages").unique("prompt_id")
    rows = (
        rollouts.join(texts, on="candidate_id")
        .join(prompts, on="prompt_id")
        .sort("step", "candidate_id")
        .collect()
    )
    asked = zip(rows["messages"].to_list(), rows["text"].to_list(), strict=True)
    true = [score(messages[-1]["content"], text) for messages, text in asked]
    return rows.select("step", "reward").with_columns(pl.Series(TRUE_SCORE, true, pl.Float64))


def course(rows: pl.DataFrame, metric: str, every: int = 1) -> Curve:
    """Return the mean of a metric over every few steps, by the last of them."""
    ends = ((pl.col("step") + every - 1) // every * every).alias("until")
    means = rows.group_by(ends).agg(pl.col(metric).mean()).sort("until")
    return {float(step): value for step, value in means.select("until", metric).iter_rows()}


def late_rise(curve: Curve) -> float:
    """Return the mean of a curve's last third of points minus the mean of the third before it.

    Raises:
        NotMeasuredError: if there are fewer than two points.
    """
    values = [curve[x] for x in sorted(curve)]
    if len(values) < FEWEST_POINTS:
        raise NotMeasuredError(f"a curve of {len(values)} points does not rise: take more steps")
    third = max(1, len(values) // 3)
    return fmean(values[-third:]) - fmean(values[-2 * third : -third])


def learned_lead(run: RunReader, iteration: int = 1) -> float:
    """Return the lead of the imitated answers over all sampled ones, in hidden score."""
    prompts = run.scan("prompts").select("prompt_id", "messages").unique("prompt_id")
    answers = run.scan("candidates", iteration=iteration).filter(pl.col("kind") == "sample")
    learned = run.scan("demonstrations", iteration=iteration).select("candidate_id").unique()
    rows = answers.join(prompts, on="prompt_id").sort("candidate_id").collect()
    return _mean_score(rows.join(learned.collect(), on="candidate_id")) - _mean_score(rows)


def _mean_score(rows: pl.DataFrame) -> float:
    asked = zip(rows["messages"].to_list(), rows["text"].to_list(), strict=True)
    return fmean(score(messages[-1]["content"], text) for messages, text in asked)


def reward_metric(run: RunReader, name: str) -> float:
    """Return a metric of the reward model that a run trained last.

    Raises:
        NotMeasuredError: if the run lacks a reward model, or the metric.
    """
    models = run.scan("reward_models").select("iteration", "metrics").sort("iteration").collect()
    told = json.loads(models["metrics"][-1]) if len(models) else {}
    if name not in told:
        raise NotMeasuredError(f"run {run.folder.name} has no {name} of a reward model")
    return float(told[name])


def reward_accuracy(run: RunReader) -> float:
    """Return the percentage of held-out pairs that a reward model ranks right."""
    return 100 * reward_metric(run, "held_out/accuracy")


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's correlation of two lists; equal values share the mean of their ranks.

    None if one of the lists has a single value.
    """
    frame = pl.DataFrame({"first": first, "second": second})
    ranks = frame.select(pl.all().rank("average"))
    if 1 in (ranks["first"].n_unique(), ranks["second"].n_unique()):
        return None
    return float(ranks.select(pl.corr("first", "second")).item())
