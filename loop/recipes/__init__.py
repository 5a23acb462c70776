"""The recipes: one file each, whose name is in `SHIPPED`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import polars as pl

from ...configs.recipe_names import own_recipe, recipe_class
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
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


def _shipped(name: str) -> RecipeEntry:
    """Return the recipe in the module of its name, with the module's `PAPER` and `SUMMARY`."""
    called = name.replace("-", "_")
    module: Any = import_module(f".{called}", __package__)
    return RecipeEntry(
        recipe=getattr(module, called),
        paper=module.PAPER,
        summary=module.SUMMARY,
        compared=name in COMPARED,
        trials=getattr(module, "TRIALS", ()),
    )


# fmt: off
COMPARED = (
    "sft", "feedme", "reward-conditioning", "dpo", "reward-model", "best-of-n", "expert-iteration",
    "ppo", "quark",
)
"""AlpacaFarm's methods, which `--recipes all` runs."""
SHIPPED = (
    "rlrf", "kto", "reward-only", *COMPARED, "ultrafeedback-dpo", "ultrafeedback-bon",
    "ultrafeedback-ppo", "reflective-sft", "task-reward", "ultracm", "critique-model",
    "chatglm-ppo", "chatglm-dpo", "chatglm-rs", "grpo", "rloo", "online-dpo", "self-rewarding",
)
# fmt: on
RECIPES = {name: _shipped(name) for name in SHIPPED}


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
