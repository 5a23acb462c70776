"""A model that does not load ends a run at once, with one sentence and code 2."""

import shutil
from pathlib import Path

import pytest
from processes import call_command
from world import write_prompts

from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.cli.app import Exit
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers.identity import model_digest

pytestmark = pytest.mark.model


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    prompts = f"prompts.source={write_prompts(tmp_path)}"
    words = ("run", "--iterations", "1", "--policy", "tiny", "--critic", "tiny")
    return (*words, "--set", prompts, "--set", "policy.engine.kind=transformers")


def test_context_longer_than_the_models(tmp_path, options, tiny_policy):
    further = EngineConfig(kind="transformers", max_model_len=4096)
    with pytest.raises(EngineError, match="2048"):
        model_digest(str(tiny_policy), further)
    setting = "critic.engine.max_model_len=2049"
    code, _, stderr = call_command(tmp_path / "lake", *options, "--set", setting)
    assert (code, setting.removeprefix("critic.") in stderr) == (Exit.BAD_INPUT, True)
    assert not (tmp_path / "lake" / "runs").exists()


def test_damaged_weights_are_not_tried_again(tmp_path, options, tiny_policy):
    model = shutil.copytree(tiny_policy, tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    code, _, stderr = call_command(tmp_path / "lake", *options, "--policy", str(model))
    assert code == Exit.BAD_INPUT, stderr
    assert "cannot be loaded" in stderr
    assert "restart" not in stderr
