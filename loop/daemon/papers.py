"""The main tables of the four papers as suites: their recipes, settings and order."""

from collections.abc import Mapping
from dataclasses import replace

from ...configs.schema import ConfigError
from ..recipes import RECIPES
from .suite import Arm, in_order

PAPERS: Mapping[str, tuple[Arm, ...]] = {
    # Table 2: M_1 and M_2 by either way of training, and the reward alone.
    "rlrf": (
        Arm(name="dpo", recipe="rlrf", settings=("iterations=1", "recipe.train=dpo")),
        Arm(name="rs", recipe="rlrf", settings=("iterations=1", "recipe.train=rs")),
        Arm(
            name="dpo-dpo", recipe="rlrf", settings=("iterations=2", "recipe.train=dpo"), fork="dpo"
        ),
        Arm(
            name="rs-dpo",
            recipe="rlrf",
            settings=("iterations=2", "recipe.train=[rs, dpo]"),
            fork="rs",
        ),
        Arm(
            name="reward-only-dpo",
            recipe="reward-only",
            settings=("iterations=1", "recipe.train=dpo"),
        ),
        Arm(
            name="reward-only-rs",
            recipe="reward-only",
            settings=("iterations=1", "recipe.train=rs"),
            fork="reward-only-dpo",
        ),
    ),
    # Table 2: the methods, all from one supervised model, with one reward model.
    "alpacafarm": in_order([name for name, variant in RECIPES.items() if variant.compared]),
    # Table 3 and Sections 3.2 and 3.3: reward models of overall and of fine-grained grades, the
    # best of n answers by each, then PPO; and DPO, as models trained on the set are.
    "ultrafeedback": (
        Arm(
            name="bon-fine-grained",
            recipe="ultrafeedback-bon",
            settings=("recipe.binarisation=all-pairs",),
        ),
        Arm(
            name="bon-overall",
            recipe="ultrafeedback-bon",
            settings=("recipe.binarisation=overall",),
        ),
        Arm(
            name="ppo",
            recipe="ultrafeedback-ppo",
            settings=("recipe.binarisation=all-pairs",),
        ),
        Arm(name="dpo", recipe="ultrafeedback-dpo"),
    ),
    # Table 3: rejection sampling, DPO and PPO by one debiased reward model.
    "chatglm": (
        Arm(name="rs", recipe="chatglm-rs"),
        Arm(name="dpo", recipe="chatglm-dpo"),
        Arm(name="ppo", recipe="chatglm-ppo"),
    ),
}
"""The arms of each paper's suite."""
UNDECIDED = ("verdict.on_regression=continue",)
"""The papers do not select between their rounds: a table has each model, even a worse one."""


def arms_of(paper: str) -> tuple[Arm, ...]:
    """Return the arms of a paper's main table.

    Raises:
        ConfigError: if the paper is unknown.
    """
    if paper not in PAPERS:
        raise ConfigError(f"--paper {paper}: the papers are {', '.join(PAPERS)}")
    return tuple(replace(arm, settings=(*arm.settings, *UNDECIDED)) for arm in PAPERS[paper])
