"""Compared answers may come from several models."""

import json
from collections import Counter

import pytest
from judges import judged_config
from world import handle_rows, turn

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.recipes.annotated_pairs import annotate_pairs, draft_answers
from lpfloop.stores.records import Candidate

POOL = """
models:
- {name: cool, model: policy, sampling: {temperature: 0.5, top_p: 0.9}}
- {name: parrot, model: tiny, engine: {kind: scripted, script: "scripts:parrot"}}
"""


def test_answers_are_of_the_pools_models(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(POOL)
    settings = (f"completion.pool={path}", "recipe.n=2", "recipe.name=chatglm-ppo")
    wanted = Job(config=judged_config(tmp_path, "greater", *settings), lake=tmp_path, name="a")
    with turn(wanted) as it:
        pairs = handle_rows(it, annotate_pairs(it, it.run.config.recipe))
        answers: list[Candidate] = handle_rows(it, draft_answers(it, it.run.config.recipe))
    drafts = {c.candidate_id: c for c in answers}
    sides = Counter(drafts[side].model for p in pairs for side in (p.chosen_id, p.rejected_id))
    assert set(sides) == {"cool", "parrot"}
    assert {c.principle for c in drafts.values()} == {None}
    cool = next(c for c in drafts.values() if c.model == "cool")
    assert json.loads(cool.sampling)["temperature"] == 0.5


def test_unused_pool_is_refused():
    config = RunOptions(recipe="rlrf", settings=("completion.pool=chatglm",)).resolve()
    with pytest.raises(ConfigError, match=r"completion\.pool"):
        rehearse(config, tiny_prompts()[::40])
