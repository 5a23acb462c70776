"""The tokens that a preview marks as learned are those that TRL's trainer has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from crashing import write_prompts
from thinking import thinking_model

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.planning import dry_rehearsal
from lpfloop.loop.daemon.preview import END, INDENT, LEARNED, preview_lines
from lpfloop.loop.daemon.rehearsal import Rehearsal
from lpfloop.loop.daemon.stand_ins import StageNotes

pytestmark = pytest.mark.model


def tokenizer_of(policy: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(policy, local_files_only=True)


def rehearsed(folder: Path, policy: Path) -> Rehearsal:
    """Rehearse a run of a few prompts that trains a policy by DPO."""
    settings = (
        f"prompts.source={write_prompts(folder)}",
        f"policy.model={policy}",
        "policy.engine.kind=transformers",
        "policy.sampling.max_tokens=24",
        "critic.engine={kind: scripted, script: 'crashing:critic'}",
        "training.dpo.max_length=512",
    )
    return dry_rehearsal(load_config("tiny", "rlrf", settings, {}), folder)


def row_of_trl(notes: StageNotes, folder: Path, policy: Path) -> dict[str, list[int]]:
    """Return the token ids of a rehearsed training's first row, by TRL's own trainer."""
    from lpfloop.policies.trainers.trainer_job import write_job
    from lpfloop.policies.trainers.trl_trainer import make_trainer

    assert notes.job is not None
    data, work = folder / "pairs.parquet", folder / "work"
    pl.DataFrame([notes.row]).write_parquet(data)
    job = replace(notes.job, model=policy, reference=None, data=(data,), output=work)
    write_job(job)
    trainer: Any = make_trainer(job, tokenizer_of(policy))
    (row,) = trainer.train_dataset
    return {name: list(row[f"{name}_ids"]) for name in ("prompt", "chosen", "rejected")}


@pytest.mark.parametrize("family", [None, "qwen3"])
def test_what_a_preview_marks_is_what_trl_learns(
    tiny_policy: Path, tmp_path: Path, family: str | None
) -> None:
    """A template that writes a line feed after the end token has it learned, too."""
    policy = tiny_policy if family is None else thinking_model(tiny_policy, tmp_path / "m", family)
    rehearsal = rehearsed(tmp_path, policy)
    (notes,) = (s.notes for s in rehearsal.stages if s.notes.stage == "train")
    tokens = row_of_trl(notes, tmp_path, policy)
    tokenizer = tokenizer_of(policy)
    lines = list(preview_lines(rehearsal, "train", 1))
    shown = "".join(line.removeprefix(INDENT) for line in lines if line.startswith(INDENT))
    for name in ("chosen", "rejected"):
        whole, learned = len(tokens["prompt"]) + len(tokens[name]), len(tokens[name])
        assert f"  {name}: {whole:,} tokens, {learned:,} learned (in {LEARNED}{END})" in lines
        text = f"{tokenizer.decode(tokens['prompt'])}{LEARNED}{tokenizer.decode(tokens[name])}{END}"
        assert text.replace("\n", "") in shown
