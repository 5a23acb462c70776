"""PPO with the reward alone, and minus a reference reward (ChatGLM-RLHF, Section 3.4, Eq. 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lpfloop.loop.evaluation.panels import Lines, Series
from lpfloop.loop.library.read_only_run import ReadOnlyRun

from .arms import Arms, Mean, Options, Report, Table

CLAIM = (
    "With a reference reward the first step's mean reward is within 0.1 standard deviations of "
    "zero; the estimated KL at equal reward is not higher than without."
)
SHARED = (
    "reward.model=tiny",
    "prompts.per_iteration=600",
    "prompts.parts={sft: 0, preference: 0, unlabeled: 600}",
    "prompts.evaluated=60",
    "assessment.reference=null",
    "assessment.reward=false",
    "training.ppo.rollouts=256",
    "training.ppo.batch_size=64",
    "training.ppo.micro_batch_size=64",
    "training.ppo.inner_epochs=1",
    "training.ppo.max_steps=12",
)
UNWHITENED = ("training.ppo.whiten_rewards=none", "training.ppo.whiten_advantages=none")
ARMS: Mapping[str, Sequence[str]] = {
    "plain": ("training.ppo.reference_reward=false",),
    "bare": ("training.ppo.reference_reward=false", *UNWHITENED),
    "reference": ("training.ppo.reference_reward=true", *UNWHITENED),
}
TITLES: Mapping[str, str] = {
    "plain": "whitened advantages",
    "bare": "reward alone",
    "reference": "less the reference reward",
}
"""The paper whitens nothing, with or without the reference reward; whitening is our default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A PPO step: the optimised reward (mean and deviation over rollouts), the score, the KL."""

    reward: float
    deviation: float
    score: float
    kl: float


def study(options: Options) -> Report:
    """Optimise for the same reward model from the same M_0 in each arm."""
    made = Arms(study="reference", variant="ppo", shared=SHARED, arms=ARMS)
    made.make(options)
    found = {TITLES[arm]: [_steps(run) for run in made.opened(options, arm)] for arm in ARMS}
    level = [min(max(s.score for s in steps) for steps in arms) for arms in _by_seed(found)]
    rows = [
        ["mean reward of the first step, in standard deviations"]
        + [
            Mean.of(s[0].reward / s[0].deviation for s in seeds).shown() for seeds in found.values()
        ],
        ["KL to M_0 at the highest score that all reach, in nats"]
        + [
            Mean.of(_kl_at(steps, at) for steps, at in zip(seeds, level, strict=True)).shown(2)
            for seeds in found.values()
        ],
        ["that score", *(Mean.of(level).shown() for _ in found)],
        ["score of the last step"]
        + [Mean.of(steps[-1].score for steps in seeds).shown() for seeds in found.values()],
    ]
    return Report(
        claim=CLAIM,
        tables=[Table(titles=["PPO", *found], rows=rows)],
        panels=[_first(found), _frontier(found)],
    )


def _by_seed(found: Mapping[str, Sequence[Sequence[Step]]]) -> list[tuple[Sequence[Step], ...]]:
    return list(zip(*found.values(), strict=True))


def _steps(run: ReadOnlyRun) -> list[Step]:
    rewards = run.rollouts().join(run.rewards().select("candidate_id", "score"), on="candidate_id")
    rows = (
        rewards.group_by("step")
        .agg(
            pl.col("reward").mean(),
            pl.col("reward").std().alias("deviation"),
            pl.col("score").mean(),
            pl.col("kl").mean(),
        )
        .sort("step")
        .collect()
    )
    return [
        Step(reward=row["reward"], deviation=row["deviation"], score=row["score"], kl=row["kl"])
        for row in rows.iter_rows(named=True)
    ]


def _kl_at(steps: Sequence[Step], score: float) -> float:
    """Return the KL where the mean score first reaches `score`, interpolated between two steps."""
    before = steps[0]
    for step in steps:
        if step.score >= score:
            rise = step.score - before.score
            share = (score - before.score) / rise if rise else 0.0
            return before.kl + share * (step.kl - before.kl)
        before = step
    raise ValueError(f"no step reaches a mean score of {score}")


def _first(found: Mapping[str, Sequence[Sequence[Step]]]) -> Lines:
    series = list[Series]()
    for title, seeds in found.items():
        means = [Mean.of(s.reward for s in of) for of in zip(*seeds, strict=True)]
        series.append(
            Series(
                label=title,
                x=range(1, len(means) + 1),
                y=[mean.value for mean in means],
                low=[mean.value - mean.error for mean in means],
                high=[mean.value + mean.error for mean in means],
            )
        )
    return Lines(
        series=series,
        title="what PPO optimises",
        x_label="PPO step",
        y_label="mean reward of the rollouts",
        level=0.0,
    )


def _frontier(found: Mapping[str, Sequence[Sequence[Step]]]) -> Lines:
    series = list[Series]()
    for title, seeds in found.items():
        of = list(zip(*seeds, strict=True))
        series.append(
            Series(
                label=title,
                x=[Mean.of(s.kl for s in step).value for step in of],
                y=[Mean.of(s.score for s in step).value for step in of],
            )
        )
    return Lines(
        series=series,
        title="reward and KL",
        x_label="KL to M_0, nats an answer",
        y_label="mean score by the reward model",
    )
