"""What a recipe needs is said by the class of its settings, and missed before anything is paid."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashing import Silent
from typer.testing import CliRunner

import lpfloop
from lpfloop.configs import recipes as settings
from lpfloop.configs.load import load_config
from lpfloop.configs.recipes import Annotated, Graded, Recipe, Rewarded, Varied
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.configs.variants import recipe_class, variants
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.recipes import RECIPES, Variant, shipped
from lpfloop.loop.recipes.annotated_pairs import surrogate
from lpfloop.loop.recipes.missing_needs import require_needs, verbs_of
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages import compare
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.online_rl import train_ppo
from lpfloop.loop.stages.prefer import prefer
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.train import train
from lpfloop.loop.stages.variance_filter import varied

PACKAGE = Path(lpfloop.__file__).parent
BASES = (Annotated, Graded, Rewarded, Varied)
SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "assessment.kl=false",
    "prompts.per_iteration=12",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=5",
    "training.min_pairs=100000",
)


class MyDPO(Annotated):
    """Settings of a recipe that asks annotators."""

    name: str = settings.semantic("my-dpo", "the variant")


class Plain(Recipe):
    """Settings that ask for nothing."""

    name: str = settings.semantic("plain", "the variant")


def my_dpo(it, cfg):
    """DPO by its own verbs, written anew."""
    drafts = sample(it, it.prompts("preference"), n=cfg.n)
    return train(it, prefer(it, drafts, annotate(it, drafts)))


def hidden(it, cfg):
    """The same, by a function inside a function that calls another one."""

    def made():
        return my_dpo(it, cfg)

    return made()


def by_modules(it, cfg):
    """A verb found by its module's name."""
    return compare.annotate(it, cfg)


@pytest.fixture
def added(monkeypatch):
    """Add a recipe as a contributor does: its class, and its line in the dict."""

    def add(name: str, recipe, kind: type[Recipe]) -> None:
        known = {**variants(), name: kind}
        monkeypatch.setattr("lpfloop.configs.variants.variants", lambda: known)
        listed = Variant(recipe=recipe, paper="", summary="", compared=False)
        monkeypatch.setitem(RECIPES, name, listed)

    return add


def run(lake, name: str, *more: str):
    options = [f"--set={text}" for text in (*SCRIPTED, *more)]
    return CliRunner().invoke(app, ["run", "--variant", name, "--lake", str(lake), *options])


@pytest.mark.parametrize("name", RECIPES)
def test_the_settings_of_every_shipped_recipe_have_what_its_verbs_need(name):
    bases = {base for needed in verbs_of(RECIPES[name].recipe).values() for base in needed}
    assert all(issubclass(recipe_class(name), base) for base in bases)


@pytest.mark.parametrize("name", RECIPES)
def test_the_settings_of_every_shipped_recipe_ask_for_nothing_that_no_verb_needs(name):
    needed = [base for bases in verbs_of(RECIPES[name].recipe).values() for base in bases]
    asked = {base for base in BASES if issubclass(recipe_class(name), base)}
    assert asked == {base for base in BASES if any(issubclass(each, base) for each in needed)}


def test_every_recipe_has_one_line_and_one_class_of_settings():
    assert set(RECIPES) == set(variants())
    for name, variant in RECIPES.items():
        kind = list(inspect.signature(variant.recipe).parameters.values())[1].annotation
        assert kind is recipe_class(name)
        assert shipped(variant.recipe).summary == variant.summary


def test_recipes_are_listed_by_name_in_one_place():
    names = {name for name in RECIPES if "-" in name}
    listing = {
        path.relative_to(PACKAGE)
        for room in ("configs", "critics", "loop", "policies", "stores")
        for path in (PACKAGE / room).glob("**/*.py")
        if any(len(texts & names) > 1 for texts in listed_texts(path))
    }
    assert listing == {Path("loop/recipes/__init__.py")}


def listed_texts(path: Path) -> Iterator[set[str]]:
    """Give the texts of each list, set, tuple or dict of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            yield {part.value for part in parts if isinstance(part, ast.Constant)}


def test_verbs_are_found_through_functions_and_modules():
    assert verbs_of(my_dpo) == {annotate: (Annotated,)}
    assert verbs_of(hidden) == {annotate: (Annotated,)}
    assert verbs_of(by_modules) == {annotate: (Annotated,)}
    assert set(verbs_of(RECIPES["ppo"].recipe)) == {surrogate, train_ppo, varied}
    assert verbs_of(RECIPES["sft"].recipe) == {}


def test_a_recipe_of_dpos_verbs_is_paid_to_its_end(tmp_path, added):
    added("my-dpo", my_dpo, MyDPO)
    told = run(tmp_path, "my-dpo")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    assert "fewer than training.min_pairs" in told.stderr


@pytest.mark.parametrize("recipe", [my_dpo, hidden, by_modules])
def test_a_verb_without_its_base_is_refused_before_anything_is_made(tmp_path, added, recipe):
    added("plain", recipe, Plain)
    told = run(tmp_path, "plain")
    assert told.exit_code == Exit.BAD_INPUT
    assert "the recipe plain calls annotate, which needs Annotated among the bases of Plain" in (
        " ".join(told.stderr.split())
    )
    assert not (tmp_path / "runs").exists()


def test_annotators_are_not_relied_on_where_a_reward_model_takes_their_place(tmp_path, added):
    class Both(Annotated, Rewarded):
        name: str = settings.semantic("both", "the variant")

    added("both", my_dpo, Both)
    told = run(tmp_path, "both", "reward.model=tiny")
    assert told.exit_code == Exit.BAD_INPUT
    assert "surrogate" in told.stderr
    assert not (tmp_path / "runs").exists()
    assert run(tmp_path, "both").exit_code == Exit.NOTHING_TO_TRAIN_ON


def test_a_reward_that_nobody_gives_is_refused():
    class Optimised(Rewarded):
        name: str = settings.semantic("optimised", "the variant")

    def optimised(it, cfg):
        return train_ppo(it, it.prompts(), None)

    with pytest.raises(ConfigError, match=r"reward\.model is none, and the recipe optimised"):
        require_needs(
            optimised,
            RunConfig(recipe=Optimised(), reward=load_config("own", None, (), {}).reward),
        )


def test_a_recipe_that_returns_no_checkpoint_is_told_so(tmp_path, added):
    added("plain", lambda it, cfg: None, Plain)
    config = load_config("tiny", "plain", (*SCRIPTED, "iterations=1"), {})
    with pytest.raises(ConfigError, match="the recipe plain returned None, and no checkpoint"):
        run_loop(Job(config=config, lake=tmp_path, name="a"), Silent(), StopSignal())
