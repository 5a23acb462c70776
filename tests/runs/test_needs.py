"""Requirements of a recipe: its settings class declares them, lpfloop checks them before paying."""

import pytest
from typer.testing import CliRunner
from world import Silent

from lpfloop.configs import recipes as settings
from lpfloop.configs.load import load_config
from lpfloop.configs.recipe_names import recipe_classes
from lpfloop.configs.recipes import Annotated, Recipe, Rewarded
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.recipes import RECIPES, RecipeEntry
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.prefer import prefer
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.train import train

SCRIPTED = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:critic'}",
    "assessment.kl=false",
    "prompts={per_iteration: 8, max_test: 4, max_dev: 4, chunk: 5}",
    "training.min_pairs=100000",
)


class Plain(Recipe):
    """Settings without requirements."""

    name: str = settings.semantic("plain", "the recipe")


def my_dpo(it, cfg):
    """DPO from the user's verbs."""
    drafts = sample(it, it.prompts("preference"), n=cfg.n)
    return train(it, prefer(it, drafts, annotate(it, drafts)))


@pytest.fixture
def added(monkeypatch):
    """Add a recipe like a contributor: its class, and its line in the dict."""

    def add(name: str, recipe, kind: type[Recipe]) -> None:
        known = {**recipe_classes(), name: kind}
        monkeypatch.setattr("lpfloop.configs.recipe_names.recipe_classes", lambda: known)
        listed = RecipeEntry(recipe=recipe, paper="", summary="", compared=False)
        monkeypatch.setitem(RECIPES, name, listed)

    return add


def run(lake, name: str, *more: str):
    options = [f"--set={text}" for text in (*SCRIPTED, *more)]
    return CliRunner().invoke(app, ["run", "--recipe", name, "--lake", str(lake), *options])


VERBS = {"drafts": sample, "annotate": annotate, "learn": train}


def by_dict(it, cfg):
    """DPO with its verbs in a dict."""
    drafts = VERBS["drafts"](it, it.prompts("preference"), n=cfg.n)
    return VERBS["learn"](it, prefer(it, drafts, VERBS["annotate"](it, drafts)))


def test_missing_base_is_refused(tmp_path, added):
    class Unannotated(Recipe):
        name: str = settings.semantic("unannotated", "the recipe")
        n: int = settings.semantic(2, "answers")

    added("unannotated", by_dict, Unannotated)
    told = run(tmp_path, "unannotated", "reward.model=none")
    assert told.exit_code == Exit.BAD_INPUT
    assert "Annotated among the bases of Unannotated" in told.stderr
    assert not (tmp_path / "runs").exists()


def test_verbs_in_a_dict(tmp_path, added):
    class Own(Annotated):
        name: str = settings.semantic("own-dpo", "the recipe")

    added("own-dpo", by_dict, Own)
    assert run(tmp_path, "own-dpo", "reward.model=none").exit_code == Exit.NOTHING_TO_TRAIN_ON


def test_reward_model_in_place_of_annotators(tmp_path, added):
    class Both(Annotated, Rewarded):
        name: str = settings.semantic("both", "the recipe")

    added("both", my_dpo, Both)
    told = run(tmp_path, "both", "reward.model=tiny")
    assert told.exit_code == Exit.BAD_INPUT
    assert "surrogate" in told.stderr
    assert not (tmp_path / "runs").exists()
    assert run(tmp_path, "both").exit_code == Exit.NOTHING_TO_TRAIN_ON


def test_recipe_without_checkpoint(tmp_path, added):
    added("plain", lambda it, cfg: None, Plain)
    config = load_config("tiny", "plain", (*SCRIPTED, "iterations=1"), {})
    with pytest.raises(ConfigError, match="plain returned None"):
        run_loop(Job(config=config, lake=tmp_path, name="a"), Silent(), StopSignal())
