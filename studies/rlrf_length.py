"""RLRF's Figure 5: feedback hardly changes the length of answers, and less than reward alone."""

from collections.abc import Mapping

from measures import mean_length
from rlrf_arms import DPO, DPO_DPO, REWARD_DPO, RS
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.recipes import rlrf
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable
from lpfloop.stores.lake import RunReader

PLACE = "Figure 5, Appendix A"
WITHIN = 6.0
"""Percent of M_0's length; the largest change of the paper's models by feedback is 5.9."""
LOOPS: Mapping[str, tuple[StudyArm, str]] = {
    "M_1 (DPO)": (DPO, "183.66 to 188.72 tokens, +2.8 %"),
    "M_1 (RS)": (RS, "183.66 to 182.61 tokens, -0.6 %"),
    "M_2 (DPO twice)": (DPO_DPO, "183.66 to 194.56 tokens, +5.9 %"),
}
BY_REWARD = "M_1 (DPO, reward-only)"


def length_change(run: RunReader) -> float:
    """Return the change in length of held-out answers from M_0 to the last policy, in percent."""
    return 100 * (mean_length(run) / mean_length(run, 0) - 1)


def find(evidence: Evidence) -> StudyFinding:
    """Compare the mean length of each model's answers with M_0's, on the same prompts."""
    changes = {name: evidence.by_seed(arm.name, length_change) for name, (arm, _) in LOOPS.items()}
    changes[BY_REWARD] = evidence.by_seed(REWARD_DPO.name, length_change)
    told = {name: SeedEstimate.of(by, "%", signed=True) for name, by in changes.items()}
    size = {name: [abs(change) for change in by] for name, by in changes.items()}
    small = [
        PaperClaim(
            says=f"{name}: answers are within {WITHIN:g} % as long as M_0's",
            paper=PaperFigure(place=PLACE, statement=said),
            estimate=told[name],
            above=-WITHIN,
            below=WITHIN,
        )
        for name, (_, said) in LOOPS.items()
    ]
    beside = PaperClaim(
        says="by reward alone the length moves further, either way, than by feedback",
        paper=PaperFigure(place=PLACE, statement="183.66 to 175.69 tokens, -4.3 %, beside +2.8 %"),
        estimate=SeedEstimate.difference(size[BY_REWARD], size["M_1 (DPO)"], "points"),
        above=0,
    )
    return StudyFinding(
        claims=[*small, beside],
        tables=[_lengths(evidence, told)],
        panels=[
            Intervals(
                estimates=[plotted(name, change) for name, change in told.items()],
                title="length of answers",
                x_label="change since M_0, %",
                level=0.0,
            )
        ],
        commands=[
            f"lpfloop status {name}"
            for name in (evidence.names(DPO_DPO.name)[0], evidence.names(REWARD_DPO.name)[0])
        ],
    )


def _lengths(evidence: Evidence, told: Mapping[str, SeedEstimate]) -> StudyTable:
    arms = {**{name: arm for name, (arm, _) in LOOPS.items()}, BY_REWARD: REWARD_DPO}
    first = SeedEstimate.of(evidence.by_seed(DPO.name, lambda run: mean_length(run, 0)))
    rows = [("M_0", first.cell(), "-")]
    rows += [
        (name, SeedEstimate.of(evidence.by_seed(arm.name, mean_length)).cell(), told[name].cell())
        for name, arm in arms.items()
    ]
    return StudyTable(
        title="Tokens of held-out answers", columns=["model", "tokens", "since M_0"], rows=rows
    )


STUDY = Study(
    name="rlrf-length",
    hypothesis=(
        "Training on reflective feedback hardly changes how long answers are, by no more than "
        f"{WITHIN:g} %, and less than training on the reward alone."
    ),
    paper=rlrf.PAPER,
    built_in=(
        "In the tiny world careless and careful answers have the same length, so that no judge has "
        "much to gain from longer ones: that the length hardly moves is built in, in either loop."
    ),
    arms=(DPO, RS, DPO_DPO, REWARD_DPO),
    find=find,
)
