"""Reward models from grades in four aspects, or from one overall score (UltraFeedback 3.1)."""

from farm_figures import expected_of_n, reward_accuracy
from held_out_pairs import agreement, held_out_pairs
from seed_lines import seed_line, told_at
from ultrafeedback_arms import FINE, MOST, OVERALL

from lpfloop.loop.evaluation.assess import TRUE_SCORE
from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import ultrafeedback_bon
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import Evidence, Study, StudyFinding, StudyTable

ARMS = {"overall score": OVERALL, "mean of four aspects": FINE}


def find(evidence: Evidence) -> StudyFinding:
    """Compare both reward models with people, on all pairs of 16 answers to held-out prompts."""
    agrees = {
        label: evidence.by_seed(arm.name, lambda run: agreement(held_out_pairs(run)))
        for label, arm in ARMS.items()
    }
    curves = {
        label: evidence.by_seed(arm.name, lambda run: expected_of_n(run, TRUE_SCORE))
        for label, arm in ARMS.items()
    }
    overall, fine = ARMS
    return StudyFinding(
        claims=[
            PaperClaim(
                says="fine-grained reward models agree more with people",
                paper=PaperFigure(
                    place="Section 3.1, Table 2",
                    statement="mixed with open data they gain 4.2 points, overall ones 3.1",
                ),
                estimate=SeedEstimate.difference(agrees[fine], agrees[overall], "points"),
                above=0,
            )
        ],
        tables=[
            StudyTable(
                title="Agreement with people on held-out pairs",
                columns=["reward model of", "agreement, %", "own pairs held back, %"],
                rows=[
                    [
                        label,
                        SeedEstimate.of(agrees[label]).cell(),
                        SeedEstimate.of(evidence.by_seed(arm.name, reward_accuracy)).cell(),
                    ]
                    for label, arm in ARMS.items()
                ],
            ),
            StudyTable(
                title="True score of the best of n",
                columns=["reward model of", *(f"{n:g}" for n in sorted(curves[fine][0]))],
                rows=[[label, *told_at(of)] for label, of in curves.items()],
            ),
        ],
        panels=[
            Lines(
                series=[seed_line(label, of) for label, of in curves.items()],
                title="best of n by a reward model of grades",
                x_label="n",
                y_label="true score",
                log_x=True,
            )
        ],
        notes=[
            f"The best of {MOST} by fine-grained grades has a true score higher by "
            + SeedEstimate.difference(
                [curve[MOST] for curve in curves[fine]],
                [curve[MOST] for curve in curves[overall]],
                digits=2,
            ).cell()
            + " than by overall ones."
        ],
        commands=[
            f"lpfloop sql \"from grades where aspect = 'overall'\" {name}"
            for name in evidence.names(OVERALL.name)[:1]
        ],
    )


STUDY = Study(
    name="ultrafeedback-finegrained",
    hypothesis=(
        "A reward model of grades in four aspects, averaged, agrees more with people's held-out "
        "preferences than one of overall scores."
    ),
    paper=ultrafeedback_bon.PAPER,
    built_in=(
        "The scripted grader errs in each aspect by itself and by the same scale as in the overall "
        "score, so that the mean of four aspects knows more by construction; a real grader's "
        "errors may be alike in all four. Not built in is whether a reward model keeps the "
        "difference."
    ),
    arms=(FINE, OVERALL),
    find=find,
    tiny_only="its people are the hidden human, whom no other world has",
)
