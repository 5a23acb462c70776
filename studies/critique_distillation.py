"""Learning one's own refinements token by token, against DPO on pairs of the same answers.

Beside both stands fine-tuning on the texts that the critic passes: no claim is made of it, but it
tells what of a gain is due to the answers, and what to the distribution that they were drawn from.
"""

from functools import partial

from measures import distilled_divergence, figure_of, gain, right_drafts
from rlrf_arms import DISTILLED, DPO, RS
from rlrf_tables import models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.panels import Intervals
from lpfloop.loop.recipes import critique_distillation
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.evidence import Evidence
from lpfloop.loop.studies.study import Study, StudyFinding

ARMS = {"distilled": DISTILLED, "DPO": DPO, "fine-tuned on the texts": RS}
MARGIN = 3.0
"""So many points less than DPO are no loss worth the name."""
LEARNED = PaperFigure(
    place="Snell et al., 2022",
    said="no figure of critiques: what a context does for a model's answers can be learned",
)
NONE = PaperFigure(said="no figure: nobody compares it with DPO on the same answers")


def find(evidence: Evidence) -> StudyFinding:
    """Compare M_1 with M_0, and with the M_1 that DPO makes of the same refinements."""
    gains = {
        name: SeedEstimate.of(evidence.by_seed(arm.name, gain), "points", signed=True)
        for name, arm in ARMS.items()
    }
    claims = [
        PaperClaim(
            says="M_1 that learned its refinements token by token is verified more often than M_0",
            paper=LEARNED,
            estimate=gains["distilled"],
            above=0,
        ),
        PaperClaim(
            says=f"it is not verified less often than M_1 of DPO by {MARGIN:g} points or more",
            paper=NONE,
            estimate=evidence.lead(DISTILLED.name, DPO.name, figure_of),
            above=-MARGIN,
        ),
    ]
    names = [name for arm in ARMS.values() for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=claims,
        tables=[models_by_task(evidence, DPO, ARMS)],
        panels=[
            Intervals(
                estimates=[plotted(name, value) for name, value in gains.items()],
                title="what is learned of refinements",
                x_label="verified, points above M_0",
                level=0.0,
            )
        ],
        notes=_notes(evidence),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _notes(evidence: Evidence) -> list[str]:
    """Say how near the policy came to itself with its critique, and what that was worth."""
    began, ended = (
        SeedEstimate.of(
            evidence.by_seed(DISTILLED.name, partial(distilled_divergence, first=first)), digits=3
        )
        for first in (True, False)
    )
    drafts, refined = (
        SeedEstimate.of(evidence.by_seed(DPO.name, partial(right_drafts, kind=kind)), "%")
        for kind in ("sample", "refinement")
    )
    gap = (
        f"Of the drafts {drafts.told()} were right, of their refinements {refined.told()}: this is "
        "the gap between a policy with and without its critique."
    )
    fell = (
        f"The divergence from the policy with its critique fell from {began.told()} to "
        f"{ended.told()} nats a token."
    )
    text = evidence.lead(DISTILLED.name, RS.name, figure_of)
    beside = (
        f"It is verified by {text.told()} more often than M_1 fine-tuned on the texts that passed: "
        "this is what the distribution says beyond them. Of none were settings searched here; "
        "DPO's steps are smaller, and go over its pairs once."
    )
    return [gap, fell, beside]


STUDY = Study(
    name="critique-distillation",
    hypothesis=(
        "A policy can learn, token by token, to answer as it does when it sees its critique: M_1 "
        "is better than M_0, and no worse than by DPO on pairs of the same answers."
    ),
    paper=critique_distillation.PAPER,
    built_in=(
        "The tiny world's M_0 was trained to follow critiques, so that its refinements are better "
        "than its drafts is built in. That the policy without a critique can say them is not."
    ),
    arms=(DPO, RS, DISTILLED),
    find=find,
)
