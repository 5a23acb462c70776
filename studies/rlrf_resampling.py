"""Critique and refinement against as many extra samples, at the same tokens."""

from functools import partial

from measures import critiques_asked, figure_of, policy_tokens, right_drafts, verified_by_task
from rlrf_arms import DPO, RESAMPLED, M, N
from rlrf_tables import critic_notes, models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable

ARMS = {f"n={N}, m={M}": DPO, f"n={N + M}, m=0": RESAMPLED}
NONE = PaperFigure(
    place="Section 3.2", statement="no figure: refined answers are the way past what is sampled"
)
ALIKE = 5.0
"""Percent by which the tokens of both may differ and still count as the same."""


def find(evidence: Evidence) -> StudyFinding:
    """Compare M_1 of both, and the training data of either."""
    refined = evidence.by_seed(DPO.name, partial(right_drafts, kind="refinement"))
    drafted = evidence.by_seed(DPO.name, partial(right_drafts, kind="sample"))
    own, other = (evidence.by_seed(arm.name, policy_tokens) for arm in ARMS.values())
    apart = [100 * (one / two - 1) for one, two in zip(own, other, strict=True)]
    own_shares, other_shares = (evidence.by_seed(a.name, verified_by_task) for a in ARMS.values())
    ahead = {
        task: SeedEstimate.difference(
            [of[task] for of in own_shares], [of[task] for of in other_shares]
        )
        for task in own_shares[0]
    }
    names = [name for arm in ARMS.values() for name in evidence.names(arm.name)]
    claims = [
        PaperClaim(
            says=f"both generate the same tokens, within {ALIKE:g} %",
            paper=PaperFigure(place="Section 4.1", statement="n + m is what is held fixed, at 30"),
            estimate=SeedEstimate.of(apart, "%", signed=True),
            above=-ALIKE,
            below=ALIKE,
        ),
        PaperClaim(
            says="a refined answer is right more often than a draft to the same prompts",
            paper=NONE,
            estimate=SeedEstimate.difference(refined, drafted, "points"),
            above=0,
        ),
        PaperClaim(
            says="M_1 is verified more often than if all answers were drafts",
            paper=NONE,
            estimate=evidence.lead(DPO.name, RESAMPLED.name, figure_of),
            above=0,
        ),
    ]
    shown = {"all": claims[-1].estimate, **ahead}
    return StudyFinding(
        claims=claims,
        tables=[_spent(evidence), models_by_task(evidence, DPO, ARMS)],
        panels=[
            Intervals(
                estimates=[plotted(task, estimate) for task, estimate in shown.items()],
                title="refinement against resampling",
                x_label="verified, points apart",
                level=0.0,
            )
        ],
        notes=critic_notes(evidence, *ARMS.values()),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _spent(evidence: Evidence) -> StudyTable:
    """Return the tokens and critiques of each split in its iteration."""

    def cells(arm: StudyArm) -> list[str]:
        measures = (policy_tokens, critiques_asked)
        return [SeedEstimate.of(evidence.by_seed(arm.name, m), digits=0).cell() for m in measures]

    return StudyTable(
        title="What is spent on training",
        columns=["split", "tokens of the policy", "critiques"],
        rows=[(name, *cells(arm)) for name, arm in ARMS.items()],
    )


STUDY = Study(
    name="rlrf-resampling",
    hypothesis=(
        "At the same generated tokens, and as many critiques, refining the promising draft by its "
        "critique makes a better policy than drawing as many more samples."
    ),
    paper=rlrf.PAPER,
    built_in=(
        "The tiny world's M_0 was trained to follow critiques, so that its refinements are better "
        "than its drafts is built in. That a policy trained on them is better is not."
    ),
    arms=(DPO, RESAMPLED),
    find=find,
)
