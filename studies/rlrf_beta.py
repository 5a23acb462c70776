"""RLRF's Table 6: the effect of DPO's beta on M_1."""

from functools import partial

from measures import figure_of, margin_of_logs
from rlrf_arms import BETA_HIGH, BETA_LOW, DPO
from rlrf_tables import models_by_task
from seed_lines import seed_line

from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding

TABLE = "Table 6"
ARMS = {0.01: BETA_LOW, 0.1: DPO, 0.5: BETA_HIGH}


def find(evidence: Evidence) -> StudyFinding:
    """Compare M_1 under three values of beta, trained on the same pairs."""
    by_task = {
        task: {
            beta: evidence.by_seed(arm.name, partial(figure_of, task=task))
            for beta, arm in ARMS.items()
        }
        for task in ("math", "facts")
    }
    math, facts = by_task["math"], by_task["facts"]
    names = [name for arm in ARMS.values() for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=[
            PaperClaim(
                says="facts: beta 0.01 is better than 0.5",
                paper=PaperFigure(place=TABLE, statement="FactScore 81.80, 78.50, 77.40"),
                estimate=SeedEstimate.difference(facts[0.01], facts[0.5], "points"),
                above=0,
            ),
            *(
                PaperClaim(
                    says=f"math: beta 0.1 is better than {beta:g}",
                    paper=PaperFigure(place=TABLE, statement=f"GSM8K 47.91 beside {said}"),
                    estimate=SeedEstimate.difference(math[0.1], math[beta], "points"),
                    above=0,
                )
                for beta, said in ((0.01, "47.01"), (0.5, "45.94"))
            ),
        ],
        tables=[
            models_by_task(evidence, DPO, {f"beta {beta:g}": arm for beta, arm in ARMS.items()})
        ],
        panels=[
            Lines(
                series=[
                    seed_line(task, [dict(zip(ARMS, seeds, strict=True)) for seeds in of_seeds])
                    for task, values in by_task.items()
                    for of_seeds in [list(zip(*values.values(), strict=True))]
                ],
                title="beta of DPO",
                x_label="beta",
                y_label="verified, %",
                log_x=True,
            )
        ],
        notes=_notes(evidence),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _notes(evidence: Evidence) -> list[str]:
    """Describe how far the policy moved away from M_0 on the pairs at each beta."""
    moved = {
        beta: SeedEstimate.of(evidence.by_seed(arm.name, margin_of_logs), "nats")
        for beta, arm in ARMS.items()
    }
    told = "; ".join(f"{value.cell()} at beta {beta:g}" for beta, value in moved.items())
    return [f"By the end of training, chosen answers had moved from rejected ones by {told}."]


STUDY = Study(
    name="rlrf-beta",
    hypothesis=(
        "DPO's beta trades tasks against each other: the smaller it is, the better M_1 is about "
        "facts, while in mathematics 0.1 is better than 0.01 and 0.5."
    ),
    paper=rlrf.PAPER,
    arms=(DPO, BETA_LOW, BETA_HIGH),
    find=find,
)
