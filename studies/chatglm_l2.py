"""The L2 term of the reward model's loss, off and on (ChatGLM-RLHF, Section 3.3, Eq. 2)."""

from collections.abc import Mapping, Sequence
from statistics import stdev

import polars as pl
from farm_figures import reward_accuracy
from seed_lines import seed_line

from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.recipes import chatglm_ppo
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable
from lpfloop.stores.lake import RunReader

PLACE = "Section 3.3, Eq. 2"
WEIGHT = 0.2
"""The paper leaves the term's weight open."""
METRICS = ("chosen/mean", "rejected/mean")
SCALE = "chosen/sd"
SETTLED = 4
"""The first such part of the steps is skipped: the random initial head still matters there."""
COST = 3.0
"""Points of accuracy that count as none."""


def _arm(name: str, weight: float, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="reward-model",
        settings=("iterations=1", f"training.reward.l2_weight={weight:g}"),
        tiny=(
            "annotation.flip_probability=0",
            "prompts.per_iteration=1000",
            "prompts.parts={layout: used, preference: 1000}",
            "prompts.max_test=12",
            "prompts.max_dev=12",
            "assessment.reference=null",
            "assessment.reward=false",
            "assessment.kl=false",
            "training.reward.held_out=240",
            "training.reward.batch_size=24",
            "training.reward.micro_batch_size=24",
        ),
        fork=fork,
    )


OFF = _arm("l2-without", 0)
ON = _arm("l2-with", WEIGHT, fork=OFF.name)
ARMS = {"without": OFF, "with": ON}


def find(evidence: Evidence) -> StudyFinding:
    """Compare how far the mean reward wanders, in rewards and in their standard deviations."""
    drifts = {label: evidence.by_seed(arm.name, drift) for label, arm in ARMS.items()}
    scales = {label: evidence.by_seed(arm.name, scale) for label, arm in ARMS.items()}
    accuracy = {label: evidence.by_seed(arm.name, reward_accuracy) for label, arm in ARMS.items()}
    wanders = {label: [wandering(curve) for curve in seeds] for label, seeds in drifts.items()}
    relative = {
        label: [w / s for w, s in zip(wanders[label], scales[label], strict=True)] for label in ARMS
    }
    return StudyFinding(
        claims=[
            PaperClaim(
                says="the mean reward wanders less over training with the term",
                paper=PaperFigure(place=PLACE, statement="constrains the volatility; no figure"),
                estimate=SeedEstimate.difference(wanders["with"], wanders["without"], digits=3),
                below=0,
            ),
            PaperClaim(
                says="it does so beside the rewards' own standard deviation, too",
                paper=PaperFigure(place=PLACE, statement="more stable training; no figure"),
                estimate=SeedEstimate.difference(relative["with"], relative["without"], digits=2),
                below=0,
            ),
            PaperClaim(
                says=f"accuracy on pairs held back falls by less than {COST:g} points",
                paper=PaperFigure(place=PLACE, statement="no cost is reported"),
                estimate=SeedEstimate.difference(accuracy["with"], accuracy["without"], "points"),
                above=-COST,
            ),
        ],
        tables=[
            StudyTable(
                title=f"With a weight of {WEIGHT:g}",
                columns=["figure", *ARMS],
                rows=[
                    _row("mean reward's deviation after a quarter of the steps", wanders, 3),
                    _row("rewards' standard deviation at the end", scales, 3),
                    _row("the first beside the second", relative, 2),
                    _row("mean reward at the end", _last(drifts), 3),
                    _row("accuracy on pairs held back, %", accuracy, 1),
                ],
            )
        ],
        panels=[
            Lines(
                series=[seed_line(label, seeds) for label, seeds in drifts.items()],
                title="L2 term of the reward model",
                x_label="training step",
                y_label="mean reward of the step's pairs",
                level=0.0,
            )
        ],
        notes=_notes(wanders, scales),
        commands=[
            (
                'lpfloop sql "select run, metric, step, value from statistics '
                "where method = 'reward' and metric in ('chosen/mean', 'rejected/mean') "
                'order by run, metric, step"'
            )
        ],
    )


def drift(run: RunReader) -> Mapping[float, float]:
    """Return each step's mean reward over both answers of its pairs.

    Raises:
        NotMeasuredError: if no reward model was trained.
    """
    rows = _statistics(run).filter(pl.col("metric").is_in(METRICS))
    means = rows.group_by("step").agg(pl.col("value").mean()).sort("step").collect()
    if means.is_empty():
        raise NotMeasuredError(f"run {run.folder.name} has trained no reward model")
    return {float(step): value for step, value in means.iter_rows()}


def scale(run: RunReader) -> float:
    """Return the standard deviation of the preferred answers' rewards in the last step."""
    rows = _statistics(run).filter(pl.col("metric") == SCALE).sort("step").collect()
    return float(rows["value"][-1])


def wandering(curve: Mapping[float, float]) -> float:
    """Return the standard deviation of the mean reward over the steps after the first quarter."""
    values = [curve[step] for step in sorted(curve)]
    return stdev(values[len(values) // SETTLED :])


def _statistics(run: RunReader) -> pl.LazyFrame:
    return run.scan("statistics").filter(pl.col("method") == "reward")


def _last(drifts: Mapping[str, Sequence[Mapping[float, float]]]) -> Mapping[str, list[float]]:
    return {label: [curve[max(curve)] for curve in seeds] for label, seeds in drifts.items()}


def _row(title: str, found: Mapping[str, Sequence[float]], digits: int) -> list[str]:
    return [title, *(SeedEstimate.of(of, digits=digits).cell() for of in found.values())]


def _notes(
    wanders: Mapping[str, Sequence[float]], scales: Mapping[str, Sequence[float]]
) -> list[str]:
    shrunk = [
        [100 * (1 - b / a) for a, b in zip(of["without"], of["with"], strict=True)]
        for of in (wanders, scales)
    ]
    less, smaller = (SeedEstimate.of(of, "%", digits=0) for of in shrunk)
    reading = "more" if less.value > smaller.value else "less"
    return [
        (
            f"With the term the mean wanders less by {less.cell()}, and the rewards' own deviation "
            f"is smaller by {smaller.cell()}: what it wanders has shrunk {reading} than the "
            "rewards have, which is what the second claim is about."
        )
    ]


STUDY = Study(
    name="chatglm-l2",
    hypothesis=(
        "The term r(x, y_w)^2 + r(x, y_l)^2 in the reward model's loss makes its training more "
        "stable: scores wander less, beside their own scale as well, at the same accuracy."
    ),
    paper=chatglm_ppo.PAPER,
    built_in=(
        "The term pulls scores to zero whatever the data are, so that the first claim follows from "
        "the formula; the second and the third do not."
    ),
    arms=(OFF, ON),
    find=find,
)
