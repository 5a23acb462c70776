"""A model that cannot be loaded as configured ends a run at once, in one sentence, with code 2."""

import json
import shutil
from pathlib import Path

import pytest
from commands import call
from crashing import write_prompts

from lpfloop.loop.cli.app import Exit

TRANSFORMERS = ("--set", "policy.engine.kind=transformers")


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    prompts = write_prompts(tmp_path)
    told = ("run", "--iterations", "1", "--policy", "tiny", "--critic", "tiny")
    return (*told, "--set", f"prompts.source={prompts}", *TRANSFORMERS)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("policy.engine.max_model_len=100000", "engine.max_model_len=100000"),
        ("critic.engine.max_model_len=2049", "engine.max_model_len=2049"),
        ("policy.engine.dtype=float8", "policy.engine.dtype"),
    ],
)
def test_a_setting_that_no_model_allows_is_refused_before_a_run_is_made(
    tmp_path: Path, options: tuple[str, ...], setting: str, told: str
):
    code, _, stderr = call(tmp_path / "lake", *options, "--set", setting)
    assert code == Exit.BAD_INPUT, stderr
    assert told in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "lake" / "runs").exists()


def test_a_model_with_scaled_positions_may_read_further_than_it_says(
    tmp_path: Path, tiny_policy: Path
):
    from lpfloop.configs.schema import EngineConfig
    from lpfloop.policies.engines.engine import EngineError
    from lpfloop.policies.workers.identity import model_digest

    further = EngineConfig(kind="transformers", max_model_len=4096)
    with pytest.raises(EngineError, match="reads 2048 tokens at most"):
        model_digest(str(tiny_policy), further)
    scaled = changed(tiny_policy, tmp_path, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert model_digest(str(scaled), further)


def changed(model: Path, folder: Path, **fields: object) -> Path:
    """A copy of a model with other fields in its configuration."""
    copy = shutil.copytree(model, folder / "model")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | fields))
    return copy


@pytest.mark.model
@pytest.mark.crash
def test_what_the_loader_refuses_is_not_tried_again(
    tmp_path: Path, options: tuple[str, ...], tiny_policy: Path
):
    model = changed(tiny_policy, tmp_path, model_type="no-such-type")
    code, _, stderr = call(tmp_path / "lake", *options, "--policy", str(model))
    assert code == Exit.BAD_INPUT, stderr
    assert "no-such-type" in stderr
    assert "cannot be loaded" in stderr
    assert "restart" not in stderr
    assert "Traceback" not in stderr


@pytest.mark.model
@pytest.mark.crash
def test_damaged_weights_are_not_tried_again(
    tmp_path: Path, options: tuple[str, ...], tiny_policy: Path
):
    model = changed(tiny_policy, tmp_path)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    code, _, stderr = call(tmp_path / "lake", *options, "--policy", str(model))
    assert code == Exit.BAD_INPUT, stderr
    assert "cannot be loaded" in stderr
    assert "restart" not in stderr
