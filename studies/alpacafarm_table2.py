"""AlpacaFarm's Table 2: methods that optimise a reward beat supervised fine-tuning, others not."""

from collections.abc import Mapping, Sequence
from functools import partial

from alpacafarm_arms import (
    BEST_OF_N,
    CONDITIONED,
    DPO,
    FEEDME,
    IMITATING,
    MOST,
    PPO,
    QUARK,
    SFT,
)
from farm_figures import learned_lead, rank_correlation, reward_accuracy
from measures import figure_of
from seed_lines import plotted

from lpfloop.loop.data.splits import HELD_OUT
from lpfloop.loop.evaluation.assess import TRUE_SCORE
from lpfloop.loop.evaluation.best_of_n import benchmark
from lpfloop.loop.evaluation.length_control import WIN_RATE
from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.lake.query.figures import LENGTH
from lpfloop.loop.recipes import best_of_n
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyArm, StudyFinding, StudyTable

TABLE = "Table 2"
IN_PAPER: Mapping[StudyArm, float] = {
    PPO: 46.8,
    DPO: 46.8,
    BEST_OF_N: 45.0,
    IMITATING: 41.9,
    SFT: 36.7,
    FEEDME: 36.6,
    QUARK: 35.6,
    CONDITIONED: 32.4,
}
"""Simulated win-rates in percent; best-of-n with n = 1024."""
OPTIMISING = (PPO, BEST_OF_N, IMITATING)
DIRECT = (FEEDME, CONDITIONED)
MARGIN = 2.0
"""Points by which a method may lead without counting as better than fine-tuning."""
POINTS = "points"


def find(evidence: Evidence) -> StudyFinding:
    """Compare the win-rates of all methods, on the same prompts, with fine-tuning's."""
    rates = {arm: _by_seed(evidence, arm, WIN_RATE) for arm in IN_PAPER}
    leads = {
        arm: SeedEstimate.difference(rates[arm], rates[SFT], POINTS)
        for arm in IN_PAPER
        if arm is not SFT
    }
    return StudyFinding(
        claims=[*_leads(leads), _ranking(rates)],
        tables=[_methods(evidence, rates)],
        panels=[
            Intervals(
                estimates=[plotted(arm.recipe, lead) for arm, lead in leads.items()],
                title="Table 2 in small",
                x_label="win-rate, points above sft",
                level=0.0,
            )
        ],
        notes=_notes(evidence, leads),
        commands=[
            f"lpfloop compare {' '.join(names)} --by-method --against {SFT.recipe}"
            for names in [[name for arm in IN_PAPER for name in evidence.names(arm.name)]]
        ],
    )


def benchmark_of(arm: StudyArm) -> str:
    """Return the benchmark of a method: for best-of-n, the best of the most samples."""
    return benchmark(MOST) if arm.recipe == BEST_OF_N.recipe else HELD_OUT


def _by_seed(evidence: Evidence, arm: StudyArm, figure: str) -> tuple[float, ...]:
    split = benchmark_of(arm)
    return evidence.by_seed(arm.name, partial(figure_of, figure=figure, split=split))


def _leads(leads: Mapping[StudyArm, SeedEstimate]) -> list[PaperClaim]:
    said = {arm: f"{IN_PAPER[arm]} % against {IN_PAPER[SFT]} %" for arm in IN_PAPER}
    beats = [
        PaperClaim(
            says=f"{arm.recipe} beats sft",
            paper=PaperFigure(place=TABLE, statement=said[arm]),
            estimate=leads[arm],
            above=0,
        )
        for arm in OPTIMISING
    ]
    return beats + [
        PaperClaim(
            says=f"{arm.recipe} does not, by more than {MARGIN:g} points",
            paper=PaperFigure(place=TABLE, statement=said[arm]),
            estimate=leads[arm],
            below=MARGIN,
        )
        for arm in DIRECT
    ]


def _ranking(rates: Mapping[StudyArm, Sequence[float]]) -> PaperClaim:
    by_seed = zip(*(rates[arm] for arm in IN_PAPER), strict=True)
    return PaperClaim(
        says=f"the {len(IN_PAPER)} methods rank as in the paper's simulation",
        paper=PaperFigure(place=TABLE, statement="Spearman's rho of a ranking with itself is 1"),
        estimate=SeedEstimate.of(
            (rank_correlation(list(IN_PAPER.values()), seed) for seed in by_seed), digits=2
        ),
        above=0,
    )


def _methods(evidence: Evidence, rates: Mapping[StudyArm, Sequence[float]]) -> StudyTable:
    rows = [
        [
            arm.recipe,
            f"{in_paper}",
            SeedEstimate.of(rates[arm]).cell(),
            SeedEstimate.of(_by_seed(evidence, arm, TRUE_SCORE), digits=2).cell(),
            SeedEstimate.of(_by_seed(evidence, arm, LENGTH)).cell(),
        ]
        for arm, in_paper in IN_PAPER.items()
    ]
    return StudyTable(
        title="The methods",
        columns=["method", "win-rate in the paper, %", "win-rate, %", "true score", "tokens"],
        rows=rows,
    )


def _notes(evidence: Evidence, leads: Mapping[StudyArm, SeedEstimate]) -> list[str]:
    true = {
        arm: SeedEstimate.difference(
            _by_seed(evidence, arm, TRUE_SCORE), _by_seed(evidence, SFT, TRUE_SCORE), digits=2
        )
        for arm in (*OPTIMISING, *DIRECT)
    }
    told = "; ".join(f"{arm.recipe} {estimate.cell()}" for arm, estimate in true.items())
    better = SeedEstimate.of(evidence.by_seed(FEEDME.name, learned_lead), digits=2, signed=True)
    held_back = SeedEstimate.of(evidence.by_seed(BEST_OF_N.name, reward_accuracy), "%")
    notes = [
        f"By the hidden human's score, above sft: {told}.",
        f"The answers that FeedME learns lie above all compared ones by {better.cell()} of it.",
        f"The reward model ranks {held_back.cell()} of the noisy pairs held back as annotators do.",
    ]
    gaining = [arm.recipe for arm in DIRECT if leads[arm].value > MARGIN]
    if gaining and better.value > 0:
        notes.append(
            f"So {' and '.join(gaining)} can gain here: preferred answers are better ones, and the "
            "policy makes mistakes often enough to learn from leaving some out."
        )
    return notes


STUDY = Study(
    name="alpacafarm-table2",
    hypothesis=(
        "By the win-rate over another model's answers, methods that optimise a learned reward "
        "(PPO, best-of-n, expert iteration) beat supervised fine-tuning; FeedME and reward "
        "conditioning, which learn from the comparisons directly, do not."
    ),
    paper=best_of_n.PAPER,
    built_in=(
        "Annotators and the human are scripts: annotators like correct, friendly and long answers, "
        "with weights of their own, and judge both in training and in the evaluation, so that "
        "whatever learns their taste wins. Which method learns it best is not built in."
    ),
    arms=(SFT, BEST_OF_N, FEEDME, CONDITIONED, DPO, IMITATING, PPO, QUARK),
    find=find,
    tiny_only="its explanation is by the hidden human's score, which no other world has",
)
