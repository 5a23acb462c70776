"""The recipes: one file each, one line each in `RECIPES`."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ...configs.recipe_names import own_recipe, recipe_class
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
class RecipeEntry:
    """A recipe, its text in `lpfloop config recipes`, and whether `--recipes all` runs it.

    `trials` are the settings that a comparison at equal tokens tries; empty if the recipe does not
    train a policy on its samples.
    """

    recipe: Callable[[Iteration, Any], Checkpoint]
    paper: str
    summary: str
    compared: bool
    trials: tuple[Trial, ...] = ()


def shipped_recipe(
    recipe: Callable[[Iteration, Any], Checkpoint], *, compared: bool = False
) -> RecipeEntry:
    """Return a recipe with the `PAPER`, the `SUMMARY` and the `TRIALS` of its module."""
    names = vars(sys.modules[recipe.__module__])
    return RecipeEntry(
        recipe=recipe,
        paper=names["PAPER"],
        summary=names["SUMMARY"],
        compared=compared,
        trials=names.get("TRIALS", ()),
    )


RECIPES: Mapping[str, RecipeEntry] = {
    "rlrf": shipped_recipe(rlrf.rlrf),
    "kto": shipped_recipe(kto.kto),
    "reward-only": shipped_recipe(reward_only.reward_only),
    "sft": shipped_recipe(sft.sft, compared=True),
    "feedme": shipped_recipe(feedme.feedme, compared=True),
    "reward-conditioning": shipped_recipe(reward_conditioning.reward_conditioning, compared=True),
    "dpo": shipped_recipe(dpo.dpo, compared=True),
    "reward-model": shipped_recipe(reward_model.reward_model, compared=True),
    "best-of-n": shipped_recipe(best_of_n.best_of_n, compared=True),
    "expert-iteration": shipped_recipe(expert_iteration.expert_iteration, compared=True),
    "ppo": shipped_recipe(ppo.ppo, compared=True),
    "quark": shipped_recipe(quark.quark, compared=True),
    "ultrafeedback-dpo": shipped_recipe(ultrafeedback_dpo.ultrafeedback_dpo),
    "ultrafeedback-bon": shipped_recipe(ultrafeedback_bon.ultrafeedback_bon),
    "ultrafeedback-ppo": shipped_recipe(ultrafeedback_ppo.ultrafeedback_ppo),
    "reflective-sft": shipped_recipe(reflective_sft.reflective_sft),
    "task-reward": shipped_recipe(task_reward.task_reward),
    "ultracm": shipped_recipe(ultracm.ultracm),
    "critique-model": shipped_recipe(critique_model.critique_model),
    "chatglm-ppo": shipped_recipe(chatglm_ppo.chatglm_ppo),
    "chatglm-dpo": shipped_recipe(chatglm_dpo.chatglm_dpo),
    "chatglm-rs": shipped_recipe(chatglm_rs.chatglm_rs),
    "grpo": shipped_recipe(grpo.grpo),
    "rloo": shipped_recipe(rloo.rloo),
    "online-dpo": shipped_recipe(online_dpo.online_dpo),
    "self-rewarding": shipped_recipe(self_rewarding.self_rewarding),
}


def recipe_entry(name: str) -> RecipeEntry:
    """Return a recipe by its name: a shipped one, or a user's function.

    Raises:
        ConfigError: if the name is unknown.
    """
    if name in RECIPES:
        return RECIPES[name]
    recipe_class(name)
    own = own_recipe(name)
    summary = (inspect.getdoc(own.function) or own.name).splitlines()[0]
    return RecipeEntry(recipe=own.function, paper="your own", summary=summary, compared=False)


def recipe_table() -> pl.DataFrame:
    """Return the shipped recipes, one row each: name, paper, summary."""
    rows = [{"name": n, "paper": e.paper, "summary": e.summary} for n, e in RECIPES.items()]
    return pl.DataFrame(rows)
