"""RLRF's Figures 2 and 3: a critic needs the reference to tell right from wrong; so the policy."""

from collections.abc import Sequence
from functools import partial

from measures import critic_auroc, figure_of, reward_auroc
from rlrf_arms import DPO, NO_REFERENCE
from rlrf_tables import critic_notes, models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding, StudyTable

PLACES = {
    "math": PaperFigure(
        place="Figure 2",
        statement="with the solution, ratings tell right from wrong; without, hardly",
    ),
    "facts": PaperFigure(
        place="Figure 3, Section 4.4",
        statement="without the abstract, wrong biographies are not recognised",
    ),
}
"""The tasks with references, and the paper's result on each."""
NONE = PaperFigure(place="Section 4.4", statement="no figure: only the critics are compared")
LABELS = {DPO.name: "with references", NO_REFERENCE.name: "without"}


def find(evidence: Evidence) -> StudyFinding:
    """Compare both critics on drafts, and the policies trained with them."""
    judged = {
        task: evidence.lead(DPO.name, NO_REFERENCE.name, partial(critic_auroc, task=task))
        for task in PLACES
    }
    trained = {
        task: evidence.lead(DPO.name, NO_REFERENCE.name, partial(figure_of, task=task))
        for task in PLACES
    }
    critics = [
        PaperClaim(
            says=f"{task}: the AUROC of ratings is higher with references",
            paper=place,
            estimate=judged[task],
            above=0,
        )
        for task, place in PLACES.items()
    ]
    policies = [
        PaperClaim(
            says=f"{task}: M_1 trained by the critic with references is verified more often",
            paper=NONE,
            estimate=trained[task],
            above=0,
        )
        for task in PLACES
    ]
    shown = [("AUROC", judged), ("verified", trained)]
    return StudyFinding(
        claims=[*critics, *policies],
        tables=[
            _critics(evidence),
            models_by_task(evidence, DPO, {LABELS[a.name]: a for a in (DPO, NO_REFERENCE)}),
        ],
        panels=[
            Intervals(
                estimates=[
                    plotted(f"{what}, {task}", estimate)
                    for what, found in shown
                    for task, estimate in found.items()
                ],
                title="what references are worth",
                x_label="points, with less without",
                level=0.0,
            )
        ],
        notes=critic_notes(evidence, DPO, NO_REFERENCE),
        commands=[f"lpfloop critic-check {evidence.names(arm)[0]}" for arm in LABELS],
    )


def _critics(evidence: Evidence) -> StudyTable:
    """Return the AUROC of ratings, with and without references, and of rewards."""

    def row(label: str, arm: str, measure: "partial[float]") -> Sequence[str]:
        return label, SeedEstimate.of(evidence.by_seed(arm, measure)).cell()

    rows = [
        (f"{task}: {label}", value)
        for task in PLACES
        for label, value in (
            row("ratings with references", DPO.name, partial(critic_auroc, task=task)),
            row("ratings without", NO_REFERENCE.name, partial(critic_auroc, task=task)),
            row("rewards", DPO.name, partial(reward_auroc, task=task)),
        )
    ]
    return StudyTable(title="AUROC on drafts, in %", columns=["task, score", "AUROC"], rows=rows)


STUDY = Study(
    name="rlrf-reference",
    hypothesis=(
        "A critic that sees the reference tells right answers from wrong ones better than the "
        "same critic without it, and the policy that it trains is better for it."
    ),
    paper=rlrf.PAPER,
    built_in=(
        "The tiny world's critic learned its lessons with and without references, and of one fact "
        "in five its memory is wrong in all of them: that it needs the abstract for facts is built "
        "in, as is that the reward is blind to arithmetic. What a policy makes of it is not."
    ),
    arms=(DPO, NO_REFERENCE),
    find=find,
)
