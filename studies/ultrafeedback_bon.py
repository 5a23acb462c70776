"""UltraFeedback's best of n: the win-rate rises with n (Section 3.2, Figure 2)."""

from collections.abc import Sequence

from farm_figures import Curve, expected_of_n, reward_accuracy, win_rate_of_n
from seed_lines import seed_line, told_at
from ultrafeedback_arms import FINE, MOST

from lpfloop.loop.evaluation.assess import REWARD, TRUE_SCORE
from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import ultrafeedback_bon
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding, StudyTable

PLACE = "Section 3.2, Figure 2"
POINTS = "points"


def find(evidence: Evidence) -> StudyFinding:
    """Read the win-rate, the reward and the hidden score of the best of n, for each n."""
    rates = evidence.by_seed(FINE.name, win_rate_of_n)
    rewards = evidence.by_seed(FINE.name, lambda run: expected_of_n(run, REWARD))
    true = evidence.by_seed(FINE.name, lambda run: expected_of_n(run, TRUE_SCORE))
    ranked = SeedEstimate.of(evidence.by_seed(FINE.name, reward_accuracy), "%")
    return StudyFinding(
        claims=[
            _rise(rates, 1, 2, "76.5 % to 84.6 %"),
            _rise(rates, 1, MOST, "76.5 % to 91.5 %"),
            _rise(rates, 2, MOST, "84.6 % to 91.5 %"),
        ],
        tables=[
            StudyTable(
                title="The best of n by a reward model of grades",
                columns=["figure", *(f"{n:g}" for n in sorted(rates[0]))],
                rows=[
                    ["win-rate over the reference, %", *told_at(rates, 1)],
                    ["reward", *told_at(rewards)],
                    ["true score", *told_at(true)],
                ],
            )
        ],
        panels=[
            Lines(
                series=[seed_line("win-rate", rates)],
                title="best of n",
                x_label="n",
                y_label="win-rate over the reference, %",
                log_x=True,
            )
        ],
        notes=[
            f"The reward model ranks {ranked.cell()} of the pairs held back as their grades do.",
            f"The true score is highest at n = {_peaks(true)} (seed by seed).",
        ],
        commands=[
            f"lpfloop compare {name}:best-of-1 {name}:best-of-4 {name}"
            for name in evidence.names(FINE.name)[:1]
        ],
    )


def _rise(rates: Sequence[Curve], few: int, many: int, said: str) -> PaperClaim:
    return PaperClaim(
        says=f"the best of {many} wins more often than the best of {few}",
        paper=PaperFigure(place=PLACE, statement=said),
        estimate=SeedEstimate.difference(
            [rate[many] for rate in rates], [rate[few] for rate in rates], POINTS
        ),
        above=0,
    )


def _peaks(curves: Sequence[Curve]) -> str:
    return ", ".join(f"{max(curve, key=curve.__getitem__):g}" for curve in curves)


STUDY = Study(
    name="ultrafeedback-bon",
    hypothesis=(
        "By a reward model of graded completions, the win-rate of the best of n answers over "
        "another model's rises with n from 1 to 16."
    ),
    paper=ultrafeedback_bon.PAPER,
    built_in=(
        "Grader, annotators and human are scripts that all like right and friendly answers, so "
        "that a reward model of the grades must help while it is right at all; how far up it does "
        "is not built in."
    ),
    arms=(FINE,),
    find=find,
    tiny_only="beside the win-rate it tells the hidden human's score, which no other world has",
)
