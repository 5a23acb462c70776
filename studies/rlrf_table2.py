"""RLRF's Table 2: M_1 and M_2 beat M_0 with either training, but not with reward alone."""

from collections.abc import Sequence

from measures import gain
from rlrf_arms import DPO, DPO_DPO, REWARD_DPO, REWARD_RS, RS, RS_DPO
from rlrf_tables import critic_notes, models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding

TABLE = "Table 2"
LOOPS: Sequence[tuple[StudyArm, str, str]] = (
    (RS, "M_1 (RS)", "GSM8K 41.77 to 47.84, FactScore 70.79 to 72.20"),
    (DPO, "M_1 (DPO)", "GSM8K 41.77 to 47.92, FactScore 70.79 to 78.50"),
    (RS_DPO, "M_2 (RS, then DPO)", "GSM8K 41.77 to 51.02, FactScore 70.79 to 76.30"),
    (DPO_DPO, "M_2 (DPO twice)", "GSM8K 41.77 to 49.66, FactScore 70.79 to 79.30"),
)
BY_REWARD: Sequence[tuple[StudyArm, str, str]] = (
    (REWARD_RS, "M_1 (RS, reward-only)", "GSM8K 41.77 to 39.27, FactScore 70.79 to 69.10"),
    (REWARD_DPO, "M_1 (DPO, reward-only)", "GSM8K 41.77 to 41.09, FactScore 70.79 to 70.79"),
)
MODELS = (*LOOPS, *BY_REWARD)
MARGIN = 2.0
"""Points that a loop by reward alone may gain without counting as an improvement."""


def find(evidence: Evidence) -> StudyFinding:
    """Compare every model of the table with M_0, on the same prompts."""
    gains = {
        arm.name: SeedEstimate.of(evidence.by_seed(arm.name, gain), "points", signed=True)
        for arm, _, _ in MODELS
    }
    better = [
        PaperClaim(
            says=f"{name} is verified more often than M_0",
            paper=PaperFigure(place=TABLE, statement=said),
            estimate=gains[arm.name],
            above=0,
        )
        for arm, name, said in LOOPS
    ]
    not_better = [
        PaperClaim(
            says=f"{name} is not, by more than {MARGIN:g} points",
            paper=PaperFigure(place=TABLE, statement=said),
            estimate=gains[arm.name],
            below=MARGIN,
        )
        for arm, name, said in BY_REWARD
    ]
    names = [name for arm, _, _ in MODELS for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=[*better, *not_better],
        tables=[models_by_task(evidence, DPO, {name: arm for arm, name, _ in MODELS})],
        panels=[
            Intervals(
                estimates=[plotted(name, gains[arm.name]) for arm, name, _ in MODELS],
                title="Table 2 in small",
                x_label="verified, points above M_0",
                level=0.0,
            )
        ],
        notes=critic_notes(evidence, DPO),
        commands=[
            f"lpfloop compare {' '.join(names)}",
            f"lpfloop critic-check {evidence.names(DPO.name)[0]}",
        ],
    )


STUDY = Study(
    name="rlrf-table2",
    hypothesis=(
        "Training on reflective feedback, by DPO or by rejection sampling, makes M_1 and M_2 "
        "better than M_0 in what can be verified; by the reward alone M_1 does not get better."
    ),
    paper=rlrf.PAPER,
    built_in=(
        "The tiny world's reward model was made to like a friendly opener and to be blind to "
        "arithmetic (its preferences weigh style with 1.6 and correct mathematics with 0.1), so "
        "that a loop by reward alone gains little says nothing about reward models; and M_0 was "
        "trained to follow critiques. That learning from them makes it better is not built in."
    ),
    arms=(DPO, RS, DPO_DPO, RS_DPO, REWARD_DPO, REWARD_RS),
    find=find,
)
