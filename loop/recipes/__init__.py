"""The loop variants: one file a method, one line each in `RECIPES`."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...configs.variants import own_recipe, recipe_class
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from . import (
    best_of_n,
    chatglm_dpo,
    chatglm_ppo,
    chatglm_rs,
    critique_model,
    dpo,
    expert_iteration,
    feedme,
    grpo,
    kto,
    online_dpo,
    ppo,
    quark,
    reflective_sft,
    reward_conditioning,
    reward_model,
    reward_only,
    rloo,
    rlrf,
    self_rewarding,
    sft,
    task_reward,
    ultracm,
    ultrafeedback_bon,
    ultrafeedback_dpo,
    ultrafeedback_ppo,
)
from .trial_settings import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A recipe, its text in `lpfloop config variants`, and whether `--variants all` runs it.

    `trials` are the settings that a comparison at equal tokens tries; empty if the recipe does not
    train a policy on its samples.
    """

    recipe: Callable[[Iteration, Any], Checkpoint]
    paper: str
    summary: str
    compared: bool
    trials: tuple[Trial, ...] = ()


def shipped_variant(
    recipe: Callable[[Iteration, Any], Checkpoint], *, compared: bool = False
) -> Variant:
    """Return a recipe with the `PAPER`, the `SUMMARY` and the `TRIALS` of its module."""
    said = vars(sys.modules[recipe.__module__])
    return Variant(
        recipe=recipe,
        paper=said["PAPER"],
        summary=said["SUMMARY"],
        compared=compared,
        trials=said.get("TRIALS", ()),
    )


RECIPES: Mapping[str, Variant] = {
    "rlrf": shipped_variant(rlrf.rlrf),
    "kto": shipped_variant(kto.kto),
    "reward-only": shipped_variant(reward_only.reward_only),
    "sft": shipped_variant(sft.sft, compared=True),
    "feedme": shipped_variant(feedme.feedme, compared=True),
    "reward-conditioning": shipped_variant(reward_conditioning.reward_conditioning, compared=True),
    "dpo": shipped_variant(dpo.dpo, compared=True),
    "reward-model": shipped_variant(reward_model.reward_model, compared=True),
    "best-of-n": shipped_variant(best_of_n.best_of_n, compared=True),
    "expert-iteration": shipped_variant(expert_iteration.expert_iteration, compared=True),
    "ppo": shipped_variant(ppo.ppo, compared=True),
    "quark": shipped_variant(quark.quark, compared=True),
    "ultrafeedback-dpo": shipped_variant(ultrafeedback_dpo.ultrafeedback_dpo),
    "ultrafeedback-bon": shipped_variant(ultrafeedback_bon.ultrafeedback_bon),
    "ultrafeedback-ppo": shipped_variant(ultrafeedback_ppo.ultrafeedback_ppo),
    "reflective-sft": shipped_variant(reflective_sft.reflective_sft),
    "task-reward": shipped_variant(task_reward.task_reward),
    "ultracm": shipped_variant(ultracm.ultracm),
    "critique-model": shipped_variant(critique_model.critique_model),
    "chatglm-ppo": shipped_variant(chatglm_ppo.chatglm_ppo),
    "chatglm-dpo": shipped_variant(chatglm_dpo.chatglm_dpo),
    "chatglm-rs": shipped_variant(chatglm_rs.chatglm_rs),
    "grpo": shipped_variant(grpo.grpo),
    "rloo": shipped_variant(rloo.rloo),
    "online-dpo": shipped_variant(online_dpo.online_dpo),
    "self-rewarding": shipped_variant(self_rewarding.self_rewarding),
}


def variant_of(name: str) -> Variant:
    """Return a recipe by its name: a shipped one, or a user's function.

    Raises:
        ConfigError: if the name is unknown.
    """
    if name in RECIPES:
        return RECIPES[name]
    recipe_class(name)
    own = own_recipe(name)
    summary = (inspect.getdoc(own.function) or own.name).splitlines()[0]
    return Variant(recipe=own.function, paper="your own", summary=summary, compared=False)
