"""What the smoke test of a run tries: the judges that it asks, and the methods that train.

Which methods train is found in the recipe's code, as its needs are (`missing_needs`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...configs.recipes import Graded, Scheduled
from ...configs.schema import RunConfig
from ...policies.trainers.job import ONLINE
from ..run.models import is_rewarded
from ..run.run import Run
from ..stages.critique_sft import demonstrate_critiques
from ..stages.distil import distil
from ..stages.grade import grade, grade_overall
from ..stages.grade_sft import demonstrate_grades
from ..stages.group_rl import train_grpo, train_online_dpo, train_rloo
from ..stages.human_sft import demonstrations
from ..stages.online_rl import train_ppo, train_quark
from ..stages.pair import binarise, demonstrate, pair, unpair
from ..stages.prefer import condition, demonstrate_preferred, prefer
from ..stages.reflection_lessons import demonstrate_reflections
from ..stages.smoke_test import SmokeNeeds
from ..stages.smoke_training import Trained
from ..stages.train import train
from ..stages.train_reward import train_reward
from . import variant_of
from .annotated_pairs import surrogate
from .graded_pairs import graded_reward
from .judge_needs import judges_itself
from .missing_needs import told_of_calls

METHODS: tuple[Trained, ...] = (
    "reward",
    "sft",
    "distil",
    "dpo",
    "kto",
    "ppo",
    "quark",
    "grpo",
    "rloo",
    "online_dpo",
)
ROWS = "rows"
"""Trained from the rows that other verbs make."""
TRAINS: Mapping[Callable[..., Any], Trained | str] = {
    train: ROWS,
    pair: "dpo",
    prefer: "dpo",
    binarise: "dpo",
    unpair: "kto",
    demonstrate: "sft",
    demonstrate_preferred: "sft",
    demonstrate_critiques: "sft",
    demonstrate_grades: "sft",
    demonstrate_reflections: "sft",
    demonstrations: "sft",
    distil: "distil",
    condition: "sft",
    train_reward: "reward",
    surrogate: "reward",
    graded_reward: "reward",
    train_ppo: "ppo",
    train_quark: "quark",
    train_grpo: "grpo",
    train_rloo: "rloo",
    train_online_dpo: "online_dpo",
}


def smoke_needs(run: Run) -> SmokeNeeds:
    """Return what the smoke test of a run is to try."""
    graded = set[str]() if run.grader is None else _graded(run.config)
    return SmokeNeeds(
        critiques=run.rates or judges_itself(run.config),
        judge="follows" if judges_itself(run.config) else "frozen",
        grades=grade.__name__ in graded,
        overall=grade_overall.__name__ in graded,
        annotates=run.panels.training is not None,
        reviews=run.filters.reviewer is not None,
        rewards=run.models.reward_id is not None,
        facts=run.fact_judge is not None,
        trainings=trainings(run.config),
    )


def _graded(config: RunConfig) -> set[str]:
    """Return the verbs that grade in a run: those that its recipe calls, or its rule reads."""
    settings, verbs = config.recipe, (grade, grade_overall)
    if not isinstance(settings, Graded) or settings.grades == "both":
        names = {verb: verb.__name__ for verb in verbs}
        return {*told_of_calls(variant_of(settings.name).recipe, names.get).values()}
    return {verbs[settings.binarisation == "overall"].__name__}


def trainings(config: RunConfig) -> tuple[Trained, ...]:
    """Return the methods that train in a run, a reward model first.

    A recipe that makes pairs as well as demonstrations says by its setting `train` (dpo or rs, or a
    schedule of both) which of them it trains on; without one, both are meant. Methods that sample
    bring the reward model that they need.
    """
    kinds = {*told_of_calls(variant_of(config.recipe.name).recipe, TRAINS.get).values()}
    if is_rewarded(config):
        kinds.discard("reward")
    if ROWS not in kinds:
        kinds -= {"dpo", "sft", "distil", "kto"}
    elif {"dpo", "sft"} <= kinds:
        by = _objectives(config)
        kinds -= {"sft"} if by == {"dpo"} else {"dpo"} if by == {"rs"} else set[str]()
    if kinds & ONLINE:
        kinds.discard("reward")
    return tuple(method for method in METHODS if method in kinds)


def _objectives(config: RunConfig) -> set[str]:
    """Return what the iterations of a run train by, as the recipe's settings say."""
    settings = config.recipe
    if isinstance(settings, Scheduled):
        return {settings.objective(number) for number in range(1, max(config.iterations, 1) + 1)}
    return {str(getattr(settings, "train", ""))}
