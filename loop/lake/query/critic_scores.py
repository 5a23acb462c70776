# pyright: basic
"""How well a run's critic rates, by iteration and task, from its stored scores.

A score has an answer's rating on each aspect, and whether the critic agrees with the verifier
(`critic_agreement`): both together show whether the answer is right. No answer is verified again,
so this is fast. `lpfloop critic-check` shows more, with intervals.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import polars as pl

from ....stores.keys import Json
from ....stores.lake import RunReader
from ...data.judged_candidates import VERIFIED, VERIFIER
from ...data.splits import DEV, HELD_OUT
from ..statistics.roc_area import area
from .policy_figures import measured_on
from .vocabulary import AGREEMENT, RATING

ALL = "all"
REWARD = "reward"
DRAFTS = "drafts"
"""The benchmark of an iteration's own answers to the prompts that it trains on."""
WATCHED = (DEV, DRAFTS, HELD_OUT)
"""The benchmarks whose answers are read."""
_ANSWER = ("iteration", "benchmark", "prompt_id", "candidate_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticScore:
    """A critic's quality on one task, or on all, by `n` answers that are rated and verified.

    `approval` is the share that it passes, `verified` the share of right answers; `precision` the
    share of passed answers that are right, `recall` the share of right answers that it passes;
    `auroc` how well its ratings, and `reward_auroc` how well the reward, separate right from wrong.
    A measure is None if one class is missing, or no answer has a reward.
    """

    iteration: int
    benchmark: str
    task: str
    n: int
    approval: float
    verified: float
    agreement: float
    precision: float | None
    recall: float | None
    auroc: float | None
    reward_auroc: float | None

    @property
    def figures(self) -> dict[str, Json]:
        """The fields, for a JSON document of its iteration."""
        return {name: value for name, value in asdict(self).items() if name != "iteration"}


def critic_scores(run: RunReader, iteration: int | None = None) -> list[CriticScore]:
    """Return the scores of each iteration and task; each iteration ends with all tasks together.

    Empty if the verifier is the critic: it would agree with itself.
    """
    if judged_by_verifier(run):
        return []
    answers = verified_answers(run, iteration)
    parts = answers.partition_by("iteration", "benchmark", maintain_order=True)
    return [score for part in parts for score in _of_benchmark(part)]


def judged_by_verifier(run: RunReader) -> bool:
    """Whether the verifier is a run's critic."""
    config = json.loads(run.journal.meta("config") or "{}")
    return config.get("critic", {}).get("kind") == VERIFIER


def verified_answers(run: RunReader, iteration: int | None) -> pl.DataFrame:
    """Return a row for each answer that is rated and verified, sorted: its ratings, its task."""
    metric, value = pl.col("metric"), pl.col("value")
    rated = metric.str.starts_with(RATING)
    judged = rated & (metric != f"{RATING}{VERIFIED}")
    watched = pl.any_horizontal(*map(measured_on, WATCHED))
    of_eval_set = measured_on(HELD_OUT)
    scores = run.scan("scores", iteration=iteration).filter(
        watched, rated | metric.is_in([AGREEMENT, REWARD])
    )
    named = pl.when(of_eval_set).then(pl.lit(HELD_OUT)).otherwise("benchmark")
    each = (
        scores.with_columns(benchmark=named)
        .group_by(*_ANSWER)
        .agg(
            rating=value.filter(judged).mean(),
            passed=(value.filter(judged) == 1).all(),
            positive=(value.filter(rated) == 1).all(),
            agrees=value.filter(metric == AGREEMENT).first() == 1,
            reward=value.filter(metric == REWARD).first(),
        )
    )
    tasks = run.scan("prompts", columns={"prompt_id", "task"}).unique("prompt_id")
    return (
        each.filter(pl.col("agrees").is_not_null() & pl.col("rating").is_not_null())
        .with_columns(right=pl.col("positive") == pl.col("agrees"))
        .join(tasks, on="prompt_id")
        # Figures of the same rows must be equal to the last bit, whatever order groups come in.
        .sort("iteration", "benchmark", "task", "prompt_id", "candidate_id")
        .collect()
    )


def _of_benchmark(answers: pl.DataFrame) -> Iterator[CriticScore]:
    tasks = answers.partition_by("task", maintain_order=True)
    for part in tasks:
        yield _score(part, str(part["task"][0]))
    if len(tasks) > 1:
        yield _score(answers, ALL)


def _score(answers: pl.DataFrame, task: str) -> CriticScore:
    n = answers.height
    right, passed, agrees = (answers[name].to_numpy() for name in ("right", "passed", "agrees"))
    both = int((right & passed).sum())
    scored = answers.filter(pl.col("reward").is_not_null())
    return CriticScore(
        iteration=answers["iteration"][0],
        benchmark=answers["benchmark"][0],
        task=task,
        n=n,
        approval=int(passed.sum()) / n,
        verified=int(right.sum()) / n,
        agreement=int(agrees.sum()) / n,
        precision=both / int(passed.sum()) if passed.any() else None,
        recall=both / int(right.sum()) if right.any() else None,
        auroc=area(answers["rating"].to_numpy(), right),
        reward_auroc=area(scored["reward"].to_numpy(), scored["right"].to_numpy()),
    )
