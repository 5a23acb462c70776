"""A preview shows the prompt of a local model, formatted by the model's template."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from world import write_prompts

from lpfloop.loop.cli.app import app

pytestmark = pytest.mark.model


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def own(folder: Path, *more: object) -> list[object]:
    """Options of a run with the user's prompts and scripted models."""
    scripts = ("policy.engine.script=world:policy", "critic.engine.script=world:critic")
    kinds = ("policy.engine.kind=scripted", "critic.engine.kind=scripted")
    settings = [f"--set={text}" for text in (*scripts, *kinds, "prompts.held_out_share=0.25")]
    lake = ("--lake", folder / "lake")
    return ["--prompts", write_prompts(folder), *lake, *settings, *more]


def test_preview_of_templates_cuts_and_mask(tmp_path, tiny_policy) -> None:
    words = own(tmp_path, "--set=policy.engine.kind=transformers", "--policy", tiny_policy)
    told = invoke("preview", *words, "--set=policy.engine.max_model_len=40", "--stage", "sample")
    assert told.exit_code == 0, told.stderr
    assert "<|user|>Tell me about the number" in told.stdout
    assert "<|assistant|>" in told.stdout
    assert "it may be cut" in " ".join(told.stdout.split())
    row = invoke("preview", *words, "--set=training.dpo.max_length=48", "--stage", "train").stdout
    assert "chosen" in row
    assert "<|assistant|>\u27e6" in row.replace("\n  | ", "")
    assert "<|end|>" in row
    assert "of them cut off" in row
    assert not (tmp_path / "lake").exists()
