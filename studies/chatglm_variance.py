# pyright: basic
"""PPO with and without prompts whose answers all score the same (ChatGLM-RLHF, Section 3.4)."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

import polars as pl
from farm_figures import course, rollout_scores
from measures import gain
from seed_lines import seed_line

from lpfloop.loop.evaluation.assess import REWARD
from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import chatglm_ppo
from lpfloop.loop.stages.select_prompts import FEWEST
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import SCORED

PLACE = "Section 3.4"
MARGIN = 0.02
"""Variance of reward below which the filter skips a prompt; the paper leaves epsilon open."""
K = 4
ASKED = "sample:variance"
"""The stage of the answers that the filter uses."""


def _arm(name: str, *settings: str, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="ppo",
        settings=("iterations=1", "assessment.reward=true", *settings),
        tiny=(
            "reward.model=tiny",
            "prompts.per_iteration=600",
            "prompts.parts={layout: used, unlabeled: 600}",
            "prompts.max_test=220",
            "prompts.max_dev=12",
            "assessment.reference=null",
            "assessment.kl=false",
            "training.ppo.max_steps=12",
        ),
        fork=fork,
    )


OFF = _arm("variance-all")
ON = _arm(
    "variance-filtered",
    f"prompts.variance.margin={MARGIN:g}",
    f"prompts.variance.k={K}",
    fork=OFF.name,
)
ARMS = {"all prompts": OFF, "filtered": ON}


def find(evidence: Evidence) -> StudyFinding:
    """Compare the gains of equal steps of PPO, and the answers to skipped and kept prompts."""
    gains = {
        label: evidence.by_seed(arm.name, partial(gain, figure=REWARD))
        for label, arm in ARMS.items()
    }
    true = {
        label: evidence.by_seed(arm.name, partial(gain, figure="true_score"))
        for label, arm in ARMS.items()
    }
    alike = evidence.by_seed(ON.name, distinct_texts)
    left, kept = ([one[side] for one in alike] for side in (0, 1))
    return StudyFinding(
        claims=[
            PaperClaim(
                says="answers to prompts left out have fewer different texts than to those kept",
                paper=PaperFigure(
                    place=PLACE,
                    statement="prompts that lead to almost the same responses; no figure",
                ),
                estimate=SeedEstimate.difference(left, kept, "points"),
                below=0,
            ),
            PaperClaim(
                says="as many PPO steps on the prompts kept raise the held-out reward more",
                paper=PaperFigure(place=PLACE, statement="ensures effectiveness; no figure"),
                estimate=SeedEstimate.difference(gains["filtered"], gains["all prompts"], digits=2),
                above=0,
            ),
        ],
        tables=[
            StudyTable(
                title="Gain from M_0 to M_1 on held-out prompts",
                columns=["figure", *ARMS],
                rows=[
                    [
                        title,
                        *(SeedEstimate.of(of, digits=2, signed=True).cell() for of in by.values()),
                    ]
                    for title, by in (("reward", gains), ("true score", true))
                ],
            )
        ],
        panels=[
            Lines(
                series=[
                    seed_line(label, evidence.by_seed(arm.name, _course))
                    for label, arm in ARMS.items()
                ],
                title="PPO on all prompts, and on those that vary",
                x_label="PPO step",
                y_label="mean reward of the rollouts",
            )
        ],
        notes=_notes(evidence, left, kept),
        commands=[f"lpfloop status {name}" for name in evidence.names(ON.name)[:1]],
    )


def _course(run: RunReader) -> Mapping[float, float]:
    return course(rollout_scores(run), REWARD, 2)


def measured_answers(run: RunReader) -> pl.DataFrame:
    """Return the rewarded answers that the filter used: prompt, text and score."""
    answers = run.scan("candidates", stages=lambda stage: stage == ASKED)
    rewards = run.scan("rewards").filter(pl.col("status") == SCORED)
    return (
        answers.join(rewards.select("candidate_id", "score"), on="candidate_id")
        .select("prompt_id", "candidate_id", "text", "score")
        .unique("candidate_id")
        .collect()
    )


def distinct_texts(run: RunReader) -> tuple[float | None, float | None]:
    """Return the percentages of distinct answers to a prompt: for skipped and for kept prompts."""
    return distinct_by_fate(measured_answers(run), MARGIN)


def distinct_by_fate(rows: pl.DataFrame, margin: float) -> tuple[float | None, float | None]:
    """Return these percentages from scored answers; None without such prompts."""
    prompts = _measured(rows, margin)
    left, kept = (
        prompts.filter(pl.col("varies") == varies)["distinct"].to_list() for varies in (False, True)
    )
    return fmean(left) if left else None, fmean(kept) if kept else None


def share_left_out(run: RunReader) -> float:
    """Return the percentage of prompts that the filter skipped."""
    return 100 * (1 - fmean(_measured(measured_answers(run), MARGIN)["varies"].to_list()))


def _measured(rows: pl.DataFrame, margin: float) -> pl.DataFrame:
    """Return the filter's figures for each prompt with two scores or more."""
    by_prompt = rows.group_by("prompt_id").agg(
        distinct=100 * pl.col("text").n_unique() / pl.len(),
        varies=pl.col("score").var(ddof=0) >= margin,
        scores=pl.len(),
    )
    return by_prompt.filter(pl.col("scores") >= FEWEST)


def _notes(
    evidence: Evidence, left: Sequence[float | None], kept: Sequence[float | None]
) -> list[str]:
    out = SeedEstimate.of(evidence.by_seed(ON.name, share_left_out), "%")
    return [
        (
            f"At a margin of {MARGIN:g} the filter leaves out {out.cell()} of 600 prompts, by {K} "
            "answers each, which cost the filtered arm more samples than the other."
        ),
        (
            f"Of a prompt's {K} answers, {SeedEstimate.of(left, '%').cell()} are different texts "
            f"where it is left out, {SeedEstimate.of(kept, '%').cell()} where it is kept."
        ),
    ]


STUDY = Study(
    name="chatglm-variance",
    hypothesis=(
        "Prompts whose answers have all about the same reward teach PPO little: the filter leaves "
        "out those with almost the same answers, and equal steps on the others gain more reward on "
        "all held-out prompts."
    ),
    paper=chatglm_ppo.PAPER,
    built_in=(
        "Answers of one text have one reward, so that the first claim is half built in (different "
        "texts can have the same reward, too); the second is not."
    ),
    arms=(OFF, ON),
    find=find,
    tiny_only="it also tells the hidden human's score, which no other world has",
)
