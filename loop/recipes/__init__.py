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


def shipped(recipe: Callable[[Iteration, Any], Checkpoint], *, compared: bool = False) -> Variant:
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
    "rlrf": shipped(rlrf.rlrf),
    "kto": shipped(kto.kto),
    "reward-only": shipped(reward_only.reward_only),
    "sft": shipped(sft.sft, compared=True),
    "feedme": shipped(feedme.feedme, compared=True),
    "reward-conditioning": shipped(reward_conditioning.reward_conditioning, compared=True),
    "dpo": shipped(dpo.dpo, compared=True),
    "reward-model": shipped(reward_model.reward_model, compared=True),
    "best-of-n": shipped(best_of_n.best_of_n, compared=True),
    "expert-iteration": shipped(expert_iteration.expert_iteration, compared=True),
    "ppo": shipped(ppo.ppo, compared=True),
    "quark": shipped(quark.quark, compared=True),
    "ultrafeedback-dpo": shipped(ultrafeedback_dpo.ultrafeedback_dpo),
    "ultrafeedback-bon": shipped(ultrafeedback_bon.ultrafeedback_bon),
    "ultrafeedback-ppo": shipped(ultrafeedback_ppo.ultrafeedback_ppo),
    "reflective-sft": shipped(reflective_sft.reflective_sft),
    "task-reward": shipped(task_reward.task_reward),
    "ultracm": shipped(ultracm.ultracm),
    "critique-model": shipped(critique_model.critique_model),
    "chatglm-ppo": shipped(chatglm_ppo.chatglm_ppo),
    "chatglm-dpo": shipped(chatglm_dpo.chatglm_dpo),
    "chatglm-rs": shipped(chatglm_rs.chatglm_rs),
    "grpo": shipped(grpo.grpo),
    "rloo": shipped(rloo.rloo),
    "online-dpo": shipped(online_dpo.online_dpo),
    "self-rewarding": shipped(self_rewarding.self_rewarding),
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
