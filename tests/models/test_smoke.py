"""The smoke test before a run's first stage makes one step of its training."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

pytestmark = [pytest.mark.model, pytest.mark.slow]

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}, attempts: 1}
reward: {model: none}
prompts: {max_test: 4, chunk: 2}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 2, m: 0}
iterations: 1
"""


def test_step_is_tried_and_not_kept(tmp_path):
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(20)]
    prompts, config, lake = (tmp_path / name for name in ("asked.jsonl", "c.yaml", "lake"))
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config.write_text(SCRIPTED)
    for name, number in (("a", 3), ("b", 0)):
        words = ["--config", config, "--prompts", prompts, "--run", name, "--lake", lake]
        more = ["--set", f"smoke.prompts={number}"]
        told = CliRunner().invoke(app, ["run", *map(str, words), *more])
        assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    reader = Reader(run_folder(lake, "a"))
    made = [s.stage for s in reader.stages() if s.stage.startswith("step:") and s.done]
    reader.close()
    assert made == ["step:smoke:dpo"]
    for left in ("work", "checkpoints"):
        assert not [path for path in (reader.folder / left).rglob("*") if path.is_file()]
    assert run_digest(run_folder(lake, "a")) == run_digest(run_folder(lake, "b"))


def test_online_step_in_bfloat16(tmp_path):
    """The trainer compares with an engine that rounds to bfloat16."""
    config = tmp_path / "c.yaml"
    config.write_text(
        "extends: tiny\npolicy: {engine: {kind: transformers, dtype: bfloat16}}\n"
        "critic: {kind: verifier}\nrecipe: {name: grpo, rewards: {verifier: 1.0, critic: 0.0}}\n"
        "prompts: {max_test: 3, max_dev: 3, per_iteration: 8}\n"
        "iterations: 1\nsmoke: {prompts: 3}\n"
        "training: {grpo: {max_steps: 1, prompts_per_step: 4, group: 4, batch_size: 16,"
        " micro_batch_size: 4}}\n"
    )
    words = ["--config", config, "--run", "a", "--lake", tmp_path / "lake"]
    told = CliRunner().invoke(app, ["run", *map(str, words)])
    assert told.exit_code == 0, told.output
    reader = Reader(run_folder(tmp_path / "lake", "a"))
    made = [s.stage for s in reader.stages() if s.done and "grpo" in s.stage]
    reader.close()
    assert made == ["step:smoke:grpo", "grpo"]
