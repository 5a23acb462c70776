"""A preview marks the same tokens as learned as TRL's trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from models import thinking_model
from world import write_prompts

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import required_prompts
from lpfloop.loop.daemon.planning import dry_rehearsal
from lpfloop.loop.daemon.preview import END, EXCERPT, INDENT, LEARNED, preview_lines
from lpfloop.loop.daemon.rehearsal import Rehearsal
from lpfloop.loop.daemon.stand_ins import RehearsedStage

pytestmark = pytest.mark.model


def rehearsed(folder: Path, policy: Path) -> Rehearsal:
    settings = (
        f"prompts.source={write_prompts(folder)}",
        f"policy.model={policy}",
        "policy.engine.kind=transformers",
        "policy.sampling.max_tokens=24",
        "critic.engine={kind: scripted, script: 'world:critic'}",
        "training.dpo.max_length=512",
    )
    config = load_config("tiny", "rlrf", settings, {})
    job = Job(config=config, lake=folder, name="a")
    return dry_rehearsal(job, required_prompts(config, folder), longest=EXCERPT)


def row_of_trl(
    notes: RehearsedStage, folder: Path, policy: Path, tokenizer: Any
) -> dict[str, list[int]]:
    from lpfloop.policies.trainers.job import write_job
    from lpfloop.policies.trainers.trl_trainer import make_trainer

    assert notes.job is not None
    data, work = folder / "pairs.parquet", folder / "work"
    pl.DataFrame([notes.row]).write_parquet(data)
    job = replace(notes.job, model=policy, reference=None, data=(data,), output=work)
    write_job(job)
    trainer: Any = make_trainer(job, tokenizer)
    (row,) = trainer.train_dataset
    return {name: list(row[f"{name}_ids"]) for name in ("prompt", "chosen", "rejected")}


def test_preview_marks_what_trl_learns(tiny_policy: Path, tmp_path: Path) -> None:
    """With a template that writes a line feed after the end token, it is also learned."""
    from transformers import AutoTokenizer

    policy = thinking_model(tiny_policy, tmp_path / "m", "qwen3")
    rehearsal = rehearsed(tmp_path, policy)
    notes = next(s for s in rehearsal.stages if s.stage == "train")
    tokenizer = AutoTokenizer.from_pretrained(policy, local_files_only=True)
    tokens = row_of_trl(notes, tmp_path, policy, tokenizer)
    lines = list(preview_lines(rehearsal, "train", 1))
    shown = "".join(line.removeprefix(INDENT) for line in lines if line.startswith(INDENT))
    for name in ("chosen", "rejected"):
        whole, learned = len(tokens["prompt"]) + len(tokens[name]), len(tokens[name])
        assert f"  {name}: {whole:,} tokens, {learned:,} learned (in {LEARNED}{END})" in lines
        text = f"{tokenizer.decode(tokens['prompt'])}{LEARNED}{tokenizer.decode(tokens[name])}{END}"
        assert text.replace("\n", "") in shown
