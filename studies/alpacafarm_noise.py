"""AlpacaFarm's noise: over-optimisation comes with it (Section 4.3, Appendix E.1).

The reward of the best of n, which best-of-n and PPO optimise, keeps rising; the hidden human's
score shows whether people's approval rises with it.
"""

from collections.abc import Mapping, Sequence

from alpacafarm_arms import BEST_OF_N, CLEAN_BEST_OF_N, CLEAN_PPO, MOST, PPO, SFT
from farm_figures import (
    Curve,
    course,
    expected_of_n,
    late_rise,
    reward_accuracy,
    rollout_scores,
    win_rate_of_n,
)
from seed_lines import seed_line, told_at

from lpfloop.loop.evaluation.assess import REWARD, TRUE_SCORE
from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import best_of_n
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding, StudyTable
from lpfloop.stores.lake import RunReader

NOISE, NO_NOISE = "25 % of labels flipped", "no noise"
EARLIER = MOST // 4
"""The last two doublings of n begin here."""
AT_ONCE = 2
"""PPO steps in a point of its curve."""
SCORE = "points of score"
Courses = Sequence[tuple[Curve, Curve]]
"""Reward and hidden score, seed by seed."""


def find(evidence: Evidence) -> StudyFinding:
    """Read both curves with noise and without: over n, and over the steps of PPO."""
    best = {
        label: evidence.by_seed(arm.name, _by_n)
        for label, arm in ((NOISE, BEST_OF_N), (NO_NOISE, CLEAN_BEST_OF_N))
    }
    steps = {
        label: evidence.by_seed(arm.name, _by_step)
        for label, arm in ((NOISE, PPO), (NO_NOISE, CLEAN_PPO))
    }
    return StudyFinding(
        claims=_claims(best, steps),
        tables=[_table(evidence)],
        panels=[
            *_panels("best-of-n", "n", best, log_x=True),
            *_panels("ppo", "PPO step", steps, log_x=False),
        ],
        notes=_notes(evidence, best),
        commands=[
            f"lpfloop compare {' '.join(evidence.names(arm.name))}"
            for arm in (BEST_OF_N, CLEAN_BEST_OF_N)
        ],
    )


def _by_n(run: RunReader) -> tuple[Curve, Curve]:
    return expected_of_n(run, REWARD), expected_of_n(run, TRUE_SCORE)


def _by_step(run: RunReader) -> tuple[Curve, Curve]:
    rows = rollout_scores(run)
    return course(rows, REWARD, AT_ONCE), course(rows, TRUE_SCORE, AT_ONCE)


def _last_doublings(curve: Curve) -> float:
    return curve[MOST] - curve[EARLIER]


def _claims(best: Mapping[str, Courses], steps: Mapping[str, Courses]) -> list[PaperClaim]:
    span = f"from the best of {EARLIER} to the best of {MOST}"
    truth = {
        label: SeedEstimate.of(
            (_last_doublings(true) for _, true in seeds), SCORE, digits=2, signed=True
        )
        for label, seeds in best.items()
    }
    late = {label: [late_rise(true) for _, true in seeds] for label, seeds in steps.items()}
    return [
        PaperClaim(
            says=f"with noise the proxy reward still rises {span}",
            paper=PaperFigure(
                place="Figure 13",
                statement="n stands for the average reward, which rises throughout",
            ),
            estimate=SeedEstimate.of(
                (_last_doublings(reward) for reward, _ in best[NOISE]), digits=2, signed=True
            ),
            above=0,
        ),
        PaperClaim(
            says=f"with noise people like the answers less {span}",
            paper=PaperFigure(
                place="Figures 12 and 13",
                statement="25 % flips: win-rate falls after n of about 16",
            ),
            estimate=truth[NOISE],
            below=0,
        ),
        PaperClaim(
            says=f"without noise people like them more {span}",
            paper=PaperFigure(
                place="Figures 12 and 13",
                statement="without flips: win-rate keeps rising to n = 1024",
            ),
            estimate=truth[NO_NOISE],
            above=0,
        ),
        PaperClaim(
            says="late in PPO people's liking rises less with noise than without",
            paper=PaperFigure(
                place="Figure 5",
                statement="win-rates fall late; not with one annotator without noise",
            ),
            estimate=SeedEstimate.difference(late[NOISE], late[NO_NOISE], SCORE, digits=2),
            below=0,
        ),
    ]


def _table(evidence: Evidence) -> StudyTable:
    rows = list[list[str]]()
    points = list[str]()
    for label, arm in ((NOISE, BEST_OF_N), (NO_NOISE, CLEAN_BEST_OF_N)):
        for title, curves in (
            ("reward", [reward for reward, _ in evidence.by_seed(arm.name, _by_n)]),
            ("true score", [true for _, true in evidence.by_seed(arm.name, _by_n)]),
            ("win-rate, %", evidence.by_seed(arm.name, win_rate_of_n)),
        ):
            points = [f"{n:g}" for n in sorted(curves[0])]
            rows.append([label, title, *told_at(curves)])
    return StudyTable(title="The best of n", columns=["labels", "figure", *points], rows=rows)


def _panels(title: str, axis: str, found: Mapping[str, Courses], *, log_x: bool) -> list[Lines]:
    return [
        Lines(
            series=[
                seed_line(label, [of[which] for of in seeds]) for label, seeds in found.items()
            ],
            title=f"{title}: {name}",
            x_label=axis,
            y_label=name,
            log_x=log_x,
        )
        for which, name in enumerate(("reward", "true score"))
    ]


def _notes(evidence: Evidence, best: Mapping[str, Courses]) -> list[str]:
    notes = [
        f"{label}: the reward model ranks "
        f"{SeedEstimate.of(evidence.by_seed(arm.name, reward_accuracy), '%').cell()} of the pairs "
        "held back as their labels say; the true score is highest at n = "
        f"{', '.join(f'{max(true, key=lambda n: true[n]):g}' for _, true in best[label])} "
        "(seed by seed)."
        for label, arm in ((NOISE, BEST_OF_N), (NO_NOISE, CLEAN_BEST_OF_N))
    ]
    fallen = [_last_doublings(true) for _, true in best[NO_NOISE]]
    if SeedEstimate.of(fallen).value < 0:
        notes.append(
            "Without noise the true score falls, too: these annotators err in one direction (they "
            "weigh style and length more than people do), and a reward model learns that direction "
            "whether or not labels are flipped. Noise is not needed for over-optimisation here."
        )
    return notes


STUDY = Study(
    name="alpacafarm-noise",
    hypothesis=(
        "Where a quarter of the comparisons is flipped, the reward model is over-optimised: its "
        "reward keeps rising while people like the answers less; without noise they like them "
        "more and more."
    ),
    paper=best_of_n.PAPER,
    built_in=(
        "The human is a hidden function, and the scripted annotators weigh style and length more "
        "than it does: so a reward model that follows them too far must lose the human at some n. "
        "Whether noise decides where is not built in."
    ),
    arms=(SFT, BEST_OF_N, CLEAN_BEST_OF_N, PPO, CLEAN_PPO),
    find=find,
    tiny_only="people's liking is measured by the hidden score that only its human has",
)
