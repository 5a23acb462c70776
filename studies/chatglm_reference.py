"""PPO with the reward alone, and minus a reference reward (ChatGLM-RLHF, Section 3.4, Eq. 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from seed_lines import seed_line

from lpfloop.loop.evaluation.plots import Lines, Series
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.recipes import chatglm_ppo
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable
from lpfloop.stores.lake import RunReader

PLACE = "Figure 4, Section 4.5"
NEAR = 0.25
"""Standard deviations of the reward that count as near zero."""
SIMILAR = 0.5
"""Minimal share of the rise without a reference reward that counts as a similar pattern."""


def _arm(name: str, *, reference: bool, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="ppo",
        settings=(
            "iterations=1",
            f"training.ppo.reference_reward={str(reference).lower()}",
            "training.ppo.whiten_rewards=none",
            "training.ppo.whiten_advantages=none",
        ),
        tiny=(
            "reward.model=tiny",
            "prompts.per_iteration=600",
            "prompts.parts={layout: used, unlabeled: 600}",
            "prompts.max_test=12",
            "prompts.max_dev=12",
            "assessment.reference=null",
            "assessment.reward=false",
            "assessment.kl=false",
            "training.ppo.rollouts=256",
            "training.ppo.batch_size=64",
            "training.ppo.micro_batch_size=64",
            "training.ppo.inner_epochs=1",
            "training.ppo.max_steps=10",
        ),
        fork=fork,
    )


BARE = _arm("ppo-reward-alone", reference=False)
REFERENCE = _arm("ppo-less-reference", reference=True, fork=BARE.name)
ALONE, LESS = "reward alone", "less the reference reward"
TITLES = {ALONE: BARE, LESS: REFERENCE}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisedStep:
    """A PPO step: the optimised reward (mean and deviation over rollouts), the score, the KL."""

    reward: float
    deviation: float
    score: float
    kl: float


def find(evidence: Evidence) -> StudyFinding:
    """Compare the optimised reward's start, the scores' rise, and its cost in KL."""
    found = {title: evidence.by_seed(arm.name, steps_of) for title, arm in TITLES.items()}
    bare, reference = found.values()
    levels = [
        min(max(s.score for s in steps) for steps in both)
        for both in zip(bare, reference, strict=True)
    ]
    costs = {
        title: [kl_at(steps, at) for steps, at in zip(seeds, levels, strict=True)]
        for title, seeds in found.items()
    }
    rises = {title: [rise(steps) for steps in seeds] for title, seeds in found.items()}
    first = {
        title: SeedEstimate.of(
            (s[0].reward / s[0].deviation for s in seeds), "sd", digits=2, signed=True
        )
        for title, seeds in found.items()
    }
    return StudyFinding(
        claims=[
            PaperClaim(
                says=f"with the reference the first step's mean reward is within {NEAR:g} sd of 0",
                paper=PaperFigure(place=PLACE, statement="the reward starts near zero"),
                estimate=first[LESS],
                above=-NEAR,
                below=NEAR,
            ),
            PaperClaim(
                says=f"the score rises by at least {SIMILAR:.0%} of what it rises without",
                paper=PaperFigure(place=PLACE, statement="similar patterns of improvement"),
                estimate=SeedEstimate.of(
                    (
                        100 * b / a if a > 0 else None
                        for a, b in zip(rises[ALONE], rises[LESS], strict=True)
                    ),
                    "%",
                    digits=0,
                ),
                above=100 * SIMILAR,
            ),
            PaperClaim(
                says="at the same score the policy has moved less from M_0 with the reference",
                paper=PaperFigure(
                    place=PLACE,
                    statement=(
                        "the estimated KL grows much less in one of the two; the text names the "
                        "one without, and argues for the one with"
                    ),
                ),
                estimate=SeedEstimate.difference(costs[LESS], costs[ALONE], "nats", digits=2),
                below=0,
            ),
        ],
        tables=[
            StudyTable(
                title="PPO",
                columns=["figure", *found],
                rows=[
                    ["mean reward of the first step", *(one.cell() for one in first.values())],
                    ["KL at the highest score that both reach, nats", *_cells(costs)],
                    ["rise of the score", *_cells(rises)],
                ],
            )
        ],
        panels=[_first(found), _frontier(found)],
        notes=_notes(first[ALONE], rises, costs),
        commands=[
            f'lpfloop sql "from statistics order by step" {evidence.names(arm.name)[0]}'
            for arm in TITLES.values()
        ],
    )


def steps_of(run: RunReader) -> list[OptimisedStep]:
    """Return the steps of a run's PPO.

    Raises:
        NotMeasuredError: if the run has no PPO steps.
    """
    scores = run.scan("rewards").select("candidate_id", "score").unique("candidate_id")
    steps = optimised(run.scan("rollouts").join(scores, on="candidate_id").collect())
    if not steps:
        raise NotMeasuredError(f"run {run.folder.name} has made no step of PPO")
    return steps


def optimised(rows: pl.DataFrame) -> list[OptimisedStep]:
    """Return the steps of rollouts: rows with `step`, `reward`, `score` and `kl`."""
    steps = (
        rows.group_by("step")
        .agg(
            pl.col("reward").mean(),
            pl.col("reward").std().alias("deviation"),
            pl.col("score").mean(),
            pl.col("kl").mean(),
        )
        .sort("step")
    )
    told = steps.select("reward", "deviation", "score", "kl").iter_rows(named=True)
    return [OptimisedStep(**row) for row in told]


def kl_at(steps: Sequence[OptimisedStep], score: float) -> float:
    """Return the KL where the mean score first reaches `score`, interpolated between two steps.

    Raises:
        ValueError: if no step reaches it.
    """
    before = steps[0]
    for step in steps:
        if step.score >= score:
            apart = step.score - before.score
            share = (score - before.score) / apart if apart else 0.0
            return before.kl + share * (step.kl - before.kl)
        before = step
    raise ValueError(f"no step reaches a mean score of {score}")


def rise(steps: Sequence[OptimisedStep]) -> float:
    """Return the rise of the mean score from the first step to the last."""
    return steps[-1].score - steps[0].score


def _cells(found: Mapping[str, Sequence[float]]) -> list[str]:
    return [SeedEstimate.of(of, digits=2).cell() for of in found.values()]


def _first(found: Mapping[str, Sequence[Sequence[OptimisedStep]]]) -> Lines:
    return Lines(
        series=[
            seed_line(title, [{float(n): s.reward for n, s in enumerate(of, 1)} for of in seeds])
            for title, seeds in found.items()
        ],
        title="what PPO optimises",
        x_label="PPO step",
        y_label="mean reward of the rollouts",
        level=0.0,
    )


def _frontier(found: Mapping[str, Sequence[Sequence[OptimisedStep]]]) -> Lines:
    def means(seeds: Sequence[Sequence[OptimisedStep]], name: str) -> list[float]:
        return [
            SeedEstimate.of(getattr(s, name) for s in of).value for of in zip(*seeds, strict=True)
        ]

    return Lines(
        series=[
            Series(label=title, x=means(seeds, "kl"), y=means(seeds, "score"))
            for title, seeds in found.items()
        ],
        title="reward and KL",
        x_label="KL to M_0, nats an answer",
        y_label="mean score by the reward model",
    )


def _notes(
    alone: SeedEstimate, rises: Mapping[str, Sequence[float]], costs: Mapping[str, Sequence[float]]
) -> list[str]:
    apart = SeedEstimate.difference(rises[LESS], rises[ALONE], digits=2)
    kl = SeedEstimate.difference(costs[LESS], costs[ALONE], "nats", digits=2)
    return [
        f"The reward alone begins at {alone.cell()}: a reward model of pairs has no zero.",
        (
            f"With the reference the score rises by {apart.cell()} more than without; a reference "
            "answer is one sample, whose own reward is noise in every advantage."
        ),
        (
            f"The KL at the same score differs by {kl.cell()}; were the paper's sentence to be "
            "read as printed, it would be above 0."
        ),
    ]


STUDY = Study(
    name="chatglm-reference",
    hypothesis=(
        "Less the reward of a reference answer, what PPO optimises begins near zero without "
        "whitening, scores rise in a similar way, and the policy moves less from M_0 for them."
    ),
    paper=chatglm_ppo.PAPER,
    built_in=(
        "The reference answer is drawn from M_0, as is the first step's, so that the first claim "
        "follows from the formula; the others do not."
    ),
    arms=(BARE, REFERENCE),
    find=find,
)
