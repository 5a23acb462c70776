"""TRL trains a thinking policy on the tokens of its prompt and its sample."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from models import TAGS, thinking_model
from rows import PAIR
from trainings import DPO

from lpfloop.policies.engines.thinking import Thinking, with_thought
from lpfloop.policies.trainers.job import TrainingError, TrainJob, TurnForm, read_job, write_job
from lpfloop.policies.trainers.rows import chat_of
from lpfloop.stores.records import Pair
from lpfloop.stores.schemas import to_table

pytestmark = pytest.mark.model

THOUGHTS = {PAIR.chosen_id: "2 and 3 are 5.", PAIR.rejected_id: "2 and 3 are 6."}
OFF = {"enable_thinking": False}


def job_of(folder: Path, tiny_policy: Path, family: str, **turns: Any) -> TrainJob:
    """Return a training on one pair whose answers had thoughts."""
    data, thoughts = folder / "pairs.parquet", folder / "thoughts.parquet"
    pl.DataFrame(to_table(Pair, [PAIR])).write_parquet(data)
    rows = {"candidate_id": list(THOUGHTS), "reasoning": list(THOUGHTS.values())}
    pl.DataFrame(rows).write_parquet(thoughts)
    form = TurnForm(**turns)
    return TrainJob(
        method="dpo",
        model=thinking_model(tiny_policy, folder / family, family),
        reference=None,
        data=(data,),
        output=folder / "work",
        settings=DPO,
        seed=1,
        turns=replace(form, thoughts=thoughts) if form.thought == "own" else form,
    )


def prepared(job: TrainJob) -> dict[str, list[int]]:
    """Return the tokens of the one row in TRL's trainer."""
    from transformers import AutoTokenizer

    from lpfloop.policies.trainers.trl_trainer import make_trainer

    write_job(job)
    tokenizer = AutoTokenizer.from_pretrained(job.model, local_files_only=True)
    trainer: Any = make_trainer(job, tokenizer)
    (row,) = trainer.train_dataset
    return {name: row[f"{name}_ids"] for name in ("prompt", "chosen", "rejected")}


def drawn(job: TrainJob, text: str) -> list[int]:
    """Return the tokens that an engine would sample, with the line feed that a template may add."""
    tokenizer = chat_of(job).tokenizer
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]


@pytest.mark.parametrize(
    ("family", "turns"),
    [
        ("qwen3", {"values": OFF}),
        ("qwen3", {"thought": "own"}),
        ("qwen3_instruct_2507", {}),
        ("deepseek_r1_distill", {"thought": "own"}),
    ],
)
def test_sampled_tokens_are_trained(tiny_policy, tmp_path, family, turns):
    job = job_of(tmp_path, tiny_policy, family, **turns)
    tokens = prepared(job)
    assert read_job(job.folder("job.json")) == job
    chat = chat_of(job)
    assert tokens["prompt"] == list(chat.prompt(PAIR.prompt))
    thinking = Thinking(tags=TAGS, begun=family == "deepseek_r1_distill")
    for name, turn in (("chosen", PAIR.chosen), ("rejected", PAIR.rejected)):
        text = turn[0].content
        if turns.get("thought") == "own":
            text = with_thought(text, THOUGHTS[getattr(PAIR, f"{name}_id")], thinking)
        wanted = drawn(job, text)
        assert tokens[name][: len(wanted)] == wanted
        assert not chat.tokenizer.decode(tokens[name][len(wanted) :]).strip()


def test_an_answer_without_its_thought(tiny_policy, tmp_path):
    job = job_of(tmp_path, tiny_policy, "deepseek_r1_distill")
    with pytest.raises(TrainingError, match=r"training\.thought"):
        prepared(job)


def test_a_turn_as_the_template_renders_it(tiny_policy, tmp_path):
    job = job_of(tmp_path, tiny_policy, "qwen3", thought="template")
    text = chat_of(job).tokenizer.decode(prepared(job)["chosen"])
    assert text == "<think>\n\n</think>\n\n5<|im_end|>\n"
