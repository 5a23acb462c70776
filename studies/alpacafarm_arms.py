"""The runs of AlpacaFarm's methods that its studies share, and their sizes in the tiny world.

All begin with the same supervised model. A name tells whose comparisons a run learns from:
simulated annotators with noise (`farm`) or without (`clean`).
"""

from lpfloop.loop.studies.study import StudyArm

SIZES = (
    "prompts.per_iteration=1800",
    "prompts.parts={layout: disjoint, sft: 400, preference: 1000, unlabeled: 400}",
    "prompts.max_test=165",
    "prompts.max_dev=24",
    "assessment.reward=false",
    "assessment.kl=false",
    "training.reward.held_out=100",
    "training.ppo.max_steps=20",
    "training.quark.max_steps=10",
)
ONE = "iterations=1"
MOST = 32
"""The largest n of best-of-n: the curve's last two doublings begin at a quarter of it."""
NOISY = "annotation.flip_probability=0.25"
CLEAN = "annotation.flip_probability=0"
CURVE = (f"recipe.most={MOST}",)
IMITATED = ("recipe.best_of=8",)

SFT = StudyArm(name="farm-sft", recipe="sft", settings=(ONE,), tiny=SIZES)


def _arm(
    learned: str, recipe: str, *settings: str, fork: str, sizes: tuple[str, ...] = ()
) -> StudyArm:
    return StudyArm(
        name=f"{learned}-{recipe}",
        recipe=recipe,
        settings=(ONE, *settings),
        tiny=(*SIZES, *sizes),
        fork=fork,
        policy_of=SFT.name,
    )


BEST_OF_N = _arm("farm", "best-of-n", NOISY, *CURVE, fork=SFT.name)
FEEDME = _arm("farm", "feedme", NOISY, fork=BEST_OF_N.name)
CONDITIONED = _arm("farm", "reward-conditioning", NOISY, fork=BEST_OF_N.name)
DPO = _arm("farm", "dpo", NOISY, fork=BEST_OF_N.name)
IMITATING = _arm("farm", "expert-iteration", NOISY, fork=BEST_OF_N.name, sizes=IMITATED)
PPO = _arm("farm", "ppo", NOISY, fork=BEST_OF_N.name)
QUARK = _arm("farm", "quark", NOISY, fork=BEST_OF_N.name)

CLEAN_BEST_OF_N = _arm("clean", "best-of-n", CLEAN, *CURVE, fork=BEST_OF_N.name)
CLEAN_PPO = _arm("clean", "ppo", CLEAN, fork=CLEAN_BEST_OF_N.name)
