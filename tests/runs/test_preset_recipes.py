from contextlib import closing

import pytest
from typer.testing import CliRunner

from lpfloop.configs.load import load_config, presets, recipe_classes
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.runs import open_run

ASKING = ("ultrafeedback", "ultracm", "chatglm")
"""Prefixes of recipes that need judges, which the world smol lacks."""


def test_presets_load_every_recipe(subtests):
    for recipe in recipe_classes():
        for world in presets():
            if world != "smol" or not recipe.startswith(ASKING):
                with subtests.test(case=recipe):
                    assert load_config(world, recipe, (), {}).recipe.name == recipe


def test_a_recipe_that_a_world_lacks():
    with pytest.raises(ConfigError, match="--config own --recipe chatglm-dpo"):
        load_config("smol", "chatglm-dpo", (), {})


def test_smol_is_annotated_by_its_verifier(tmp_path):
    scripted = ("model=tiny", "engine.kind=scripted", "engine.script=scripts:policy")
    small = ("per_iteration=40", "max_test=4", "max_dev=4")
    settings = [f"policy.{s}" for s in scripted] + [f"prompts.{s}" for s in small]
    words = ["run", "--config", "smol", "--recipe", "dpo", "--run", "a", "--lake", str(tmp_path)]
    for setting in (*settings, "training.min_pairs=1000000", "assessment.kl=false"):
        words += ["--set", setting]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4, done.stderr
    with closing(open_run(tmp_path, "a")) as run:
        preferences = run.scan("preferences", iteration=1).collect()
    assert set(preferences["status"]) == {"scored"}
    # Two answers may meet the same number of demands.
    assert set(preferences["preferred"]) <= {"first", "second", "tie"}
    assert not preferences["flipped"].any()
