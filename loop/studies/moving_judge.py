"""Self-rewarding: a judge that follows the policy, against one that stays M_0."""

from functools import partial

from ..evaluation.panels import Intervals
from ..recipes import self_rewarding
from .claims import PaperClaim, PaperFigure, SeedEstimate
from .evidence import Evidence
from .measures import critic_auroc, figure_of, pairs_a_prompt
from .rlrf_tables import models_by_task
from .seed_lines import plotted
from .study import Study, StudyArm, StudyFinding

SIZES = ("prompts.per_iteration=160", "prompts.evaluated=330", "prompts.deciding=24")
ITERATIONS = 2
"""The judges of the first are the same, and so are both arms' policies M_1."""
RISES = PaperFigure(
    place="Section 3", said="the policy judges better with each iteration; no judge stays"
)
NONE = PaperFigure(place="Section 5", said="no figure: a judge that stays is named as the limit")


def _arm(name: str, judge: str, fork: str = "") -> StudyArm:
    settings = (f"iterations={ITERATIONS}", "recipe.n=4", f"recipe.judge={judge}")
    return StudyArm(name=name, recipe="self-rewarding", settings=settings, tiny=SIZES, fork=fork)


FOLLOWS = _arm("judge-follows", "follows")
FROZEN = _arm("judge-frozen", "frozen", fork=FOLLOWS.name)
ARMS = {"follows": FOLLOWS, "frozen": FROZEN}


def find(evidence: Evidence) -> StudyFinding:
    """Compare both judges on M_1's answers, and the policies M_2 that were trained by them."""
    judged = partial(critic_auroc, iteration=ITERATIONS)
    claims = [
        PaperClaim(
            says="M_1 tells right answers of its own from wrong ones better than M_0 does",
            paper=RISES,
            estimate=evidence.lead(FOLLOWS.name, FROZEN.name, judged),
            above=0,
        ),
        PaperClaim(
            says="M_2 is verified more often if M_1 judged than if M_0 did",
            paper=NONE,
            estimate=evidence.lead(FOLLOWS.name, FROZEN.name, figure_of),
            above=0,
        ),
    ]
    verified = {
        name: SeedEstimate.of(evidence.by_seed(arm.name, figure_of)) for name, arm in ARMS.items()
    }
    names = [name for arm in ARMS.values() for name in evidence.names(arm.name)]
    return StudyFinding(
        claims=claims,
        tables=[models_by_task(evidence, FOLLOWS, ARMS)],
        panels=[
            Intervals(
                estimates=[plotted(name, value) for name, value in verified.items()],
                title="who judges M_1's answers",
                x_label="M_2 verified, %",
            )
        ],
        notes=_notes(evidence),
        commands=[f"lpfloop compare {' '.join(names)}"],
    )


def _notes(evidence: Evidence) -> list[str]:
    """Say what each judge was worth, and how much it gave to learn from."""
    return [
        f"`{arm.name}`: the AUROC of its ratings of M_1's answers is {area.told()}, and it gave "
        f"{pairs.told()} pairs a prompt in the second iteration."
        for arm in ARMS.values()
        for area in [
            SeedEstimate.of(
                evidence.by_seed(arm.name, partial(critic_auroc, iteration=ITERATIONS)), "%"
            )
        ]
        for pairs in [
            SeedEstimate.of(
                evidence.by_seed(arm.name, partial(pairs_a_prompt, iteration=ITERATIONS)), digits=2
            )
        ]
    ]


STUDY = Study(
    name="self-rewarding",
    hypothesis=(
        "A policy that judges its own answers becomes a better judge as it learns, so that a judge "
        "which follows the policy makes a better one than a judge that stays."
    ),
    paper=self_rewarding.PAPER,
    built_in=(
        "The tiny world's M_0 was trained to judge with a reference before it; DPO trains answers "
        "alone, and nothing in it keeps the judge as good as it was."
    ),
    arms=(FOLLOWS, FROZEN),
    find=find,
)
