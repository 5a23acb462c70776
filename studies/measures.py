# pyright: basic
"""Measures of a run for studies: figures of its policies, and counts of its iterations' rows.

Shares are in percent, so that their differences are points.
"""

import json
from statistics import fmean

import polars as pl

from lpfloop.loop.data.splits import HELD_OUT
from lpfloop.loop.lake.query.critic_scores import (
    ALL,
    DRAFTS,
    CriticScore,
    critic_scores,
    verified_answers,
)
from lpfloop.loop.lake.query.figures import LENGTH, SHARES, NotMeasuredError, figure_values
from lpfloop.loop.lake.statistics.roc_area import area
from lpfloop.stores.lake import RunReader

VERIFIED = "verified"
DRAWN = ("sample", "refinement")
"""The kinds of answers in an iteration's training."""
MARGINS = "rewards/margins"


def figure_of(
    run: RunReader,
    figure: str = VERIFIED,
    *,
    iteration: int | None = None,
    task: str | None = None,
    split: str = HELD_OUT,
) -> float:
    """Return the mean of a figure over prompts: of M_t, or of the last policy that was measured.

    Raises:
        NotMeasuredError: if it was not measured.
    """
    rows = figure_values(run, split, figure)
    rows = rows if task is None else rows.filter(pl.col("task") == task)
    reached = iteration if iteration is not None else rows["iteration"].max()
    values = rows.filter(pl.col("iteration") == reached)["value"].to_list()
    if not values:
        raise NotMeasuredError(
            f"run {run.folder.name} has no {figure} of M_{reached}"
            + ("" if task is None else f" on {task}")
        )
    return fmean(values) * (100 if figure in SHARES else 1)


def gain(run: RunReader, figure: str = VERIFIED, *, task: str | None = None) -> float:
    """Return the last policy's figure minus the first one's."""
    first = figure_of(run, figure, iteration=0, task=task)
    return figure_of(run, figure, task=task) - first


def verified_by_task(run: RunReader, iteration: int | None = None) -> dict[str, float]:
    """Return the percentage of M_t's verified answers in each task; by default of the last policy.

    Raises:
        NotMeasuredError: if nothing was verified.
    """
    rows = figure_values(run, HELD_OUT, VERIFIED)
    reached = rows["iteration"].max() if iteration is None else iteration
    means = rows.filter(pl.col("iteration") == reached).group_by("task").agg(pl.col("value").mean())
    return {task: 100 * value for task, value in means.sort("task").iter_rows()}


def mean_length(run: RunReader, iteration: int | None = None) -> float:
    """Return the mean number of tokens of a policy's held-out answers."""
    return figure_of(run, LENGTH, iteration=iteration)


def pairs_a_prompt(run: RunReader, iteration: int = 1) -> float:
    """Return the number of training pairs for each prompt of an iteration."""
    asked = run.scan("candidates", iteration=iteration).filter(pl.col("kind") == "sample")
    prompts = asked.select(pl.col("prompt_id").n_unique()).collect().item()
    pairs = run.scan("pairs", iteration=iteration).select(pl.len()).collect().item()
    return pairs / prompts if prompts else 0.0


def drafts_judged(run: RunReader, iteration: int = 1, task: str = ALL) -> CriticScore:
    """Return the quality of the critic, and of the reward, on drafts and refinements.

    Raises:
        NotMeasuredError: if none was both rated and verified.
    """
    for row in critic_scores(run, iteration):
        if (row.iteration, row.benchmark, row.task) == (iteration, DRAFTS, task):
            return row
    raise NotMeasuredError(f"run {run.folder.name} has no verified drafts of {task}")


def critic_auroc(run: RunReader, task: str = ALL, *, iteration: int = 1) -> float:
    """Return how often a right sample of a task has a higher rating than a wrong one, in percent.

    Refinements do not count: they depend on the measured critic, so that two critics' refinements
    differ.

    Raises:
        NotMeasuredError: if samples are all right, or all wrong.
    """
    return _auroc(run, "rating", task, iteration)


def reward_auroc(run: RunReader, task: str = ALL) -> float:
    """Return how often a right sample of a task has a higher reward than a wrong one, in percent.

    Raises:
        NotMeasuredError: if samples are all right, or all wrong.
    """
    return _auroc(run, "reward", task, 1)


def _auroc(run: RunReader, score: str, task: str, iteration: int) -> float:
    answers = _verified(run, "sample", iteration).filter(pl.col(score).is_not_null())
    answers = answers if task == ALL else answers.filter(pl.col("task") == task)
    found = area(answers[score].to_numpy(), answers["right"].to_numpy()) if len(answers) else None
    if found is None:
        raise NotMeasuredError(
            f"run {run.folder.name} has no AUROC of {task}: its samples are all right, or all wrong"
        )
    return 100 * found


def agreement(run: RunReader) -> float:
    """Return how often the critic agrees with the verifier about a draft, in percent."""
    return 100 * drafts_judged(run).agreement


def precision(run: RunReader) -> float:
    """Return the percentage of right drafts among those that the critic passes.

    Raises:
        NotMeasuredError: if it passes none.
    """
    share = drafts_judged(run).precision
    if share is None:
        raise NotMeasuredError(f"run {run.folder.name}: its critic passes no verified draft")
    return 100 * share


def right_drafts(run: RunReader, kind: str, iteration: int = 1) -> float:
    """Return the percentage of right answers among an iteration's samples, or its refinements.

    Raises:
        NotMeasuredError: if none was verified.
    """
    found = _verified(run, kind, iteration)
    if found.is_empty():
        raise NotMeasuredError(f"run {run.folder.name} has no verified {kind} of M_{iteration}")
    return 100 * fmean(found["right"].to_list())


def _verified(run: RunReader, kind: str, iteration: int) -> pl.DataFrame:
    """Return an iteration's rated and verified samples, or refinements."""
    answers = verified_answers(run, iteration).filter(pl.col("benchmark") == DRAFTS)
    kinds = run.scan("candidates", iteration=iteration).select("candidate_id", "kind")
    return answers.join(kinds.collect(), on="candidate_id").filter(pl.col("kind") == kind)


def policy_tokens(run: RunReader, iteration: int = 1) -> float:
    """Return the number of tokens that the policy generated for an iteration's training."""
    made = run.scan("candidates", iteration=iteration).filter(pl.col("kind").is_in(DRAWN))
    return float(made.select(pl.col("completion_tokens").sum()).collect().item())


def critiques_asked(run: RunReader, iteration: int = 1) -> float:
    """Return the number of an iteration's training answers that the critic judged."""
    made = run.scan("candidates", iteration=iteration).filter(pl.col("kind").is_in(DRAWN))
    judged = run.scan("critiques", iteration=iteration)
    return float(judged.join(made, on="candidate_id", how="semi").select(pl.len()).collect().item())


def margin_of_logs(run: RunReader, iteration: int = 1) -> float:
    """Return DPO's margin between chosen and rejected answers, in nats, at its last step.

    This is Eq. 3's argument without beta: how much more the policy than M_0 prefers the chosen.

    Raises:
        NotMeasuredError: if the run was not trained by DPO.
    """
    steps = run.scan("statistics", iteration=iteration).filter(pl.col("metric") == MARGINS)
    rows = steps.sort("step").collect()
    if rows.is_empty():
        raise NotMeasuredError(f"run {run.folder.name} has no margins of DPO")
    config = json.loads(run.journal.meta("config") or "{}")
    return float(rows["value"][-1]) / float(config["training"]["dpo"]["beta"])
