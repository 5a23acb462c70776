"""Several rounds of refinement against one: refining refinements until the critic passes."""

from measures import figure_of, gain, pairs_a_prompt, policy_tokens
from rlrf_arms import DPO, ROUNDS, WIDE, M, N
from rlrf_tables import critic_notes, models_by_task
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding, StudyTable

ARMS = {
    f"one round, m={M}": DPO,
    f"two rounds, m={M} each": ROUNDS,
    f"one round, m={2 * M}": WIDE,
}
NONE = PaperFigure(place="Section 3.2", statement="no figure: the paper refines once")


def find(evidence: Evidence) -> StudyFinding:
    """Compare M_1 of two rounds with M_1 of one round, with half and all of its refinements."""
    claims = [
        PaperClaim(
            says=f"M_1 of two rounds is verified more often than that of {other}",
            paper=NONE,
            estimate=evidence.lead(ROUNDS.name, arm.name, figure_of),
            above=0,
        )
        for other, arm in ARMS.items()
        if arm is not ROUNDS
    ]
    gains = {
        name: SeedEstimate.of(evidence.by_seed(arm.name, gain), signed=True)
        for name, arm in ARMS.items()
    }
    names = [name for arm in ARMS.values() for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=claims,
        tables=[_spent(evidence, gains), models_by_task(evidence, DPO, ARMS)],
        panels=[
            Intervals(
                estimates=[plotted(name, value) for name, value in gains.items()],
                title="rounds of refinement",
                x_label="verified, points above M_0",
                level=0.0,
            )
        ],
        notes=critic_notes(evidence, *ARMS.values()),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _spent(evidence: Evidence, gains: dict[str, SeedEstimate]) -> StudyTable:
    rows = [
        (
            name,
            gains[name].cell(),
            SeedEstimate.of(evidence.by_seed(arm.name, pairs_a_prompt), digits=2).cell(),
            SeedEstimate.of(evidence.by_seed(arm.name, policy_tokens), digits=0).cell(),
        )
        for name, arm in ARMS.items()
    ]
    return StudyTable(
        title="What the rounds cost",
        columns=["refinement", "gain, points", "pairs a prompt", "tokens of the policy"],
        rows=rows,
    )


STUDY = Study(
    name="rlrf-rounds",
    hypothesis=(
        "Refining a second time what the critic still faults makes a better policy than one "
        "round, also than one with as many refinements in it."
    ),
    paper=rlrf.PAPER,
    built_in=(
        f"Of the tiny world's M_0, which was trained to follow critiques, most drafts that can be "
        f"mended are mended in the first round of n={N}, m={M}, so that little is left to a second."
    ),
    arms=(DPO, ROUNDS, WIDE),
    find=find,
)
