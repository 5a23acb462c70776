"""Who plays which role is named before anything is written; who is not asked is not loaded."""

from pathlib import Path

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.recipes.roles import NeededRole, needed_roles


def roles(config: RunConfig) -> dict[str, NeededRole]:
    return {role.name: role for role in needed_roles(config)}


OWN_RECIPE = """
from lpfloop.configs.recipes import Recipe
from lpfloop.parts import critique, sample, train

def judged(it, cfg: Recipe):
    drafts = sample(it, it.prompts(), n=2)
    return train(it, critique(it, drafts))
"""


def test_own_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_RECIPE)
    asked = roles(load_config("own", f"{path}:judged", (), {}))
    assert asked["critic"].needed_by == ("critique", "evaluate")
    assert asked["policy"].needed_by == ("sample", "train", "evaluate")
