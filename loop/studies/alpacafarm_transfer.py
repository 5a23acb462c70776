"""AlpacaFarm's transfer: what is learned of simulated comparisons, judged by people (Table 4).

"People" are the tiny world's human with doubts of its own, as annotator and as judge.
"""

from collections.abc import Sequence
from functools import partial

from ..evaluation.fitted_win_rates import WIN_RATE
from ..evaluation.panels import Intervals
from ..recipes import best_of_n
from .alpacafarm_arms import (
    BEST_OF_N,
    FEEDME,
    IMITATING,
    PEOPLE_BEST_OF_N,
    PEOPLE_FEEDME,
    PEOPLE_IMITATING,
    PEOPLE_PPO,
    PPO,
    SFT,
    SINGLE_PPO,
)
from .alpacafarm_table2 import MARGIN, benchmark_of
from .claims import PaperClaim, PaperFigure, SeedEstimate
from .evidence import Evidence
from .farm_figures import people_win_rate, rank_correlation, reward_accuracy
from .measures import figure_of
from .seed_lines import plotted
from .study import Study, StudyArm, StudyFinding, StudyTable

TRANSFER, RANKING = "Table 4", "Figure 3"
TWICE: Sequence[tuple[StudyArm, StudyArm]] = (
    (SFT, SFT),
    (FEEDME, PEOPLE_FEEDME),
    (IMITATING, PEOPLE_IMITATING),
    (BEST_OF_N, PEOPLE_BEST_OF_N),
    (PPO, PEOPLE_PPO),
)
"""Each method, trained on simulated comparisons and on people's."""
MODELS: Sequence[tuple[StudyArm, str, str]] = (
    (PEOPLE_PPO, "PPO, people's labels", "55"),
    (PEOPLE_BEST_OF_N, "best-of-n, people's labels", "51 (n = 16)"),
    (SINGLE_PPO, "PPO, one annotator without noise", "50"),
    (SFT, "sft", "44"),
    (PPO, "PPO, simulated labels with noise", "43"),
)
ALIKE = 0.5
"""The rank correlation above which two rankings count as alike."""
POINTS = "points"


def find(evidence: Evidence) -> StudyFinding:
    """Let people judge every model, and compare the two rankings."""
    liked = {
        arm: evidence.by_seed(arm.name, partial(people_win_rate, benchmark=benchmark_of(arm)))
        for arm in {arm for pair in TWICE for arm in pair} | {arm for arm, _, _ in MODELS}
    }
    simulated = {
        arm: evidence.by_seed(
            arm.name, partial(figure_of, figure=WIN_RATE, split=benchmark_of(arm))
        )
        for arm, _ in TWICE
    }

    def lead(first: StudyArm, second: StudyArm) -> SeedEstimate:
        return SeedEstimate.difference(liked[first], liked[second], POINTS)

    rho = [
        rank_correlation(
            [simulated[arm][seed] for arm, _ in TWICE], [liked[arm][seed] for _, arm in TWICE]
        )
        for seed in range(len(evidence.seeds))
    ]
    return StudyFinding(
        claims=[
            PaperClaim(
                says="methods rank alike, trained and judged in simulation or by people",
                paper=PaperFigure(place=RANKING, said="Spearman's rho 0.98 of 11 systems"),
                estimate=SeedEstimate.of(rho, digits=2),
                above=ALIKE,
            ),
            PaperClaim(
                says="people like PPO of noisy simulated labels less than PPO of their own",
                paper=PaperFigure(place=TRANSFER, said="43 % against 55 %"),
                estimate=lead(PPO, PEOPLE_PPO),
                below=0,
            ),
            PaperClaim(
                says="people like it less than PPO of one annotator without noise",
                paper=PaperFigure(place=TRANSFER, said="43 % against 50 %"),
                estimate=lead(PPO, SINGLE_PPO),
                below=0,
            ),
            PaperClaim(
                says=f"nor do they like it more than sft, by more than {MARGIN:g} points",
                paper=PaperFigure(place=TRANSFER, said="43 % against 44 %"),
                estimate=lead(PPO, SFT),
                below=MARGIN,
            ),
        ],
        tables=[
            StudyTable(
                title="People's win-rate over the reference",
                columns=["model", "in the paper, %", "here, %"],
                rows=[
                    [name, said, SeedEstimate.of(liked[arm]).told()] for arm, name, said in MODELS
                ],
            ),
            StudyTable(
                title="The two rankings",
                columns=["method", "simulated, judged by annotators, %", "people's, %"],
                rows=[
                    [
                        first.recipe,
                        SeedEstimate.of(simulated[first]).told(),
                        SeedEstimate.of(liked[second]).told(),
                    ]
                    for first, second in TWICE
                ],
            ),
        ],
        panels=[
            Intervals(
                estimates=[plotted(name, SeedEstimate.of(liked[arm])) for arm, name, _ in MODELS],
                title="Table 4 in small",
                x_label="people's win-rate, %",
                level=50.0,
            )
        ],
        notes=_notes(evidence),
        commands=[
            " --rank-with ".join(
                (
                    f"lpfloop compare {' '.join(_named(evidence, 0))}",
                    ",".join(_named(evidence, 1)),
                )
            )
        ],
    )


def _named(evidence: Evidence, side: int) -> list[str]:
    return [name for pair in TWICE for name in evidence.names(pair[side].name)]


def _notes(evidence: Evidence) -> list[str]:
    right = {
        "simulated labels with noise": BEST_OF_N,
        "people's labels": PEOPLE_BEST_OF_N,
        "labels of one annotator": SINGLE_PPO,
    }
    told = "; ".join(
        f"{name} {SeedEstimate.of(evidence.by_seed(arm.name, reward_accuracy), '%').told()}"
        for name, arm in right.items()
    )
    return [f"Pairs held back that a reward model ranks as their labels say: {told}."]


STUDY = Study(
    name="alpacafarm-transfer",
    hypothesis=(
        "Simulated comparisons with noise rank methods as people's do, but what is trained on them "
        "people like less than what is trained on their own, or on one good annotator's: noise is "
        "for the research of methods, not for models to ship."
    ),
    paper=best_of_n.PAPER,
    built_in=(
        "People are a hidden function with doubts such that one agrees with the majority of three "
        "others on 66 % of pairs, as in the paper; the annotators are scripts that see less of "
        "what is right. So labels of people are the better ones by construction; how much of that "
        "a trained policy keeps is not."
    ),
    arms=(
        SFT,
        BEST_OF_N,
        FEEDME,
        IMITATING,
        PPO,
        PEOPLE_BEST_OF_N,
        PEOPLE_FEEDME,
        PEOPLE_IMITATING,
        PEOPLE_PPO,
        SINGLE_PPO,
    ),
    find=find,
    tiny_only="its people are the hidden human, whom no other world has",
)
