"""The runs of UltraFeedback that its studies share: reward models from grades, best of n."""

from lpfloop.loop.studies.study import StudyArm

MOST = 16
SIZES = (
    "prompts.per_iteration=600",
    "prompts.parts={layout: used, preference: 600}",
    "prompts.max_test=165",
    "prompts.max_dev=12",
    "assessment.reward=false",
    "assessment.kl=false",
    "training.reward.held_out=100",
)


def _arm(name: str, rule: str, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="ultrafeedback-bon",
        settings=("iterations=1", f"recipe.most={MOST}", f"recipe.binarisation={rule}"),
        tiny=SIZES,
        fork=fork,
    )


FINE = _arm("graded-fine", "mean-vs-random")
OVERALL = _arm("graded-overall", "overall", fork=FINE.name)
