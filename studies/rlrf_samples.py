"""RLRF's Figure 4: among samples, more candidates help most."""

from measures import gain, pairs_a_prompt, right_drafts
from rlrf_arms import DPO, FEW, MORE_DRAFTS, MORE_REFINED
from rlrf_tables import critic_notes, models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable

SPLITS: dict[str, StudyArm] = {
    "n=2, m=1": FEW,
    "n=7, m=1": MORE_DRAFTS,
    "n=2, m=6": MORE_REFINED,
    "n=4, m=4": DPO,
}
FIGURE = "Figure 4, Section 4.5"


def find(evidence: Evidence) -> StudyFinding:
    """Compare the gains of runs with different numbers of samples and refinements."""
    gains = {name: evidence.by_seed(arm.name, gain) for name, arm in SPLITS.items()}
    few, drafts, refined, _ = gains.values()
    names = [name for arm in SPLITS.values() for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=[
            PaperClaim(
                says="seven candidates instead of two make M_1 better",
                paper=PaperFigure(place=FIGURE, statement="sampling more y raises Just-Eval most"),
                estimate=SeedEstimate.difference(drafts, few, "points"),
                above=0,
            ),
            PaperClaim(
                says="of eight answers, seven candidates are worth more than six refinements",
                paper=PaperFigure(
                    place=FIGURE,
                    statement="more y has the largest impact; yet n=10, m=20 was chosen",
                ),
                estimate=SeedEstimate.difference(drafts, refined, "points"),
                above=0,
            ),
        ],
        tables=[_made(evidence), models_by_task(evidence, DPO, SPLITS)],
        panels=[
            Intervals(
                estimates=[
                    plotted(name, SeedEstimate.of(by_seed)) for name, by_seed in gains.items()
                ],
                title="candidates and refinements",
                x_label="verified, points above M_0",
                level=0.0,
            )
        ],
        notes=critic_notes(evidence, MORE_DRAFTS, MORE_REFINED),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _made(evidence: Evidence) -> StudyTable:
    """Return each split's gain, and its numbers of pairs and right answers to learn from."""

    def right(arm: StudyArm, kind: str) -> str:
        by_seed = evidence.by_seed(arm.name, lambda run: right_drafts(run, kind))
        return SeedEstimate.of(by_seed).cell()

    rows = [
        (
            name,
            SeedEstimate.of(evidence.by_seed(arm.name, gain), signed=True).cell(),
            SeedEstimate.of(evidence.by_seed(arm.name, pairs_a_prompt), digits=2).cell(),
            right(arm, "sample"),
            right(arm, "refinement"),
        )
        for name, arm in SPLITS.items()
    ]
    return StudyTable(
        title="What each split has to learn from",
        columns=["split", "gain, points", "pairs a prompt", "right drafts, %", "right refined, %"],
        rows=rows,
    )


STUDY = Study(
    name="rlrf-samples",
    hypothesis=(
        "More candidates make RLRF's policy better, and of a fixed number of answers candidates "
        "are worth more than refinements."
    ),
    paper=rlrf.PAPER,
    built_in=(
        "The tiny world's M_0 was trained to follow critiques, and follows them well, so that "
        "refinements may be worth more in it than of a model that learned little of it."
    ),
    arms=(DPO, FEW, MORE_DRAFTS, MORE_REFINED),
    find=find,
)
