"""The runs of RLRF that its studies share, and their sizes in the tiny world.

Runs of one seed fork the first: they share its prompts, and the other results that their settings
do not change.
"""

from lpfloop.loop.studies.study import StudyArm

SMALL = ("prompts.per_iteration=240", "prompts.max_test=330", "prompts.max_dev=24")
"""Size of an iteration that takes a minute on two cores."""
N, M = 4, 4
FIRST = "rlrf-dpo"


def rlrf_arm(name: str, *settings: str, n: int = N, m: int = M, fork: str = FIRST) -> StudyArm:
    """Return a run of RLRF: by default one iteration of DPO."""
    usual = {"iterations": "1", "recipe.train": "dpo", "recipe.n": f"{n}", "recipe.m": f"{m}"}
    for setting in settings:
        path, _, value = setting.partition("=")
        usual[path] = value
    own = tuple(f"{path}={value}" for path, value in usual.items())
    return StudyArm(name=name, recipe="rlrf", settings=own, tiny=SMALL, fork=fork)


def reward_arm(name: str, train: str, fork: str) -> StudyArm:
    """Return a run of the baseline, with as many samples a prompt as the others' answers in all."""
    settings = ("iterations=1", f"recipe.train={train}", f"recipe.n={N + M}")
    return StudyArm(name=name, recipe="reward-only", settings=settings, tiny=SMALL, fork=fork)


DPO = rlrf_arm(FIRST, fork="")
RS = rlrf_arm("rlrf-rs", "recipe.train=rs")
DPO_DPO = rlrf_arm("rlrf-dpo-dpo", "iterations=2")
RS_DPO = rlrf_arm("rlrf-rs-dpo", "iterations=2", "recipe.train=[rs, dpo]", fork=RS.name)
REWARD_DPO = reward_arm("reward-only-dpo", "dpo", FIRST)
REWARD_RS = reward_arm("reward-only-rs", "rs", REWARD_DPO.name)

NO_REFERENCE = rlrf_arm("rlrf-no-reference", "critic.use_reference=false")
RESAMPLED = rlrf_arm("rlrf-resampled", n=N + M, m=0)
BETA_LOW = rlrf_arm("rlrf-beta-0.01", "training.dpo.beta=0.01")
BETA_HIGH = rlrf_arm("rlrf-beta-0.5", "training.dpo.beta=0.5")
FEW = rlrf_arm("rlrf-n2-m1", n=2, m=1)
MORE_DRAFTS = rlrf_arm("rlrf-n7-m1", n=7, m=1)
MORE_REFINED = rlrf_arm("rlrf-n2-m6", n=2, m=6)
ROUNDS = rlrf_arm("rlrf-two-rounds", "recipe.rounds=2")
WIDE = rlrf_arm("rlrf-n4-m8", m=2 * M)

STEPS = 30
"""Steps of 16 prompts with 4 answers each: as many answers as the iterations of `COURSE`."""
COURSE = StudyArm(
    name="course-rlrf",
    recipe="rlrf",
    settings=("iterations=3", "recipe.train=dpo", f"recipe.n={N}", f"recipe.m={M}"),
    tiny=("prompts.per_iteration=80", *SMALL[1:]),
)
"""A run that is compared at equal tokens forks nothing, as reused units would cost nothing."""


def group_arm(method: str) -> StudyArm:
    """Return a run of a method that learns from groups of answers, with the same critic."""
    return StudyArm(
        name=f"course-{method}",
        recipe=method,
        settings=(
            "iterations=1",
            f"training.{method}.publish_every=10",
            f"training.{method}.held_out_each=true",
        ),
        tiny=(f"training.{method}.max_steps={STEPS}", "prompts.per_iteration=240", *SMALL[1:]),
    )


GRPO = group_arm("grpo")
RLOO = group_arm("rloo")
