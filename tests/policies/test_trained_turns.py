"""The tokens that TRL trains a thinking policy on are those it was prompted with, and drew."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from families import FAMILIES, begin_family
from thinking import TAGS, thinking_model
from trainings import DPO, SFT
from trainings import turn as turn_of

from examples import PAIR
from lpfloop.policies.engines.chat_template import ALPACA, load_tokenizer
from lpfloop.policies.engines.thinking import Thinking, with_thought
from lpfloop.policies.trainers.trained_turns import chat_of
from lpfloop.policies.trainers.trainer_faults import TrainingError
from lpfloop.policies.trainers.trainer_job import (
    TrainJob,
    TurnForm,
    job_json,
    read_job,
    write_job,
)
from lpfloop.stores.records import Message, Pair
from lpfloop.stores.schemas import to_table

pytestmark = pytest.mark.model

THOUGHTS = {PAIR.chosen_id: "2 and 3 are 5.", PAIR.rejected_id: "2 and 3 are 6."}
OFF = {"enable_thinking": False}
ASKED, CHOSEN, REJECTED = "Tom has 2 apples and gets 4 more.", "2 + 4 = 6", "2 + 4 = 7"


def job_of(folder: Path, tiny_policy: Path, family: str, **turns: Any) -> TrainJob:
    """Return a training of one pair whose answers had thoughts."""
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
    """Return the tokens of the one row as TRL's trainer has them."""
    from transformers import AutoTokenizer

    from lpfloop.policies.trainers.trl_trainer import make_trainer

    write_job(job)
    tokenizer = AutoTokenizer.from_pretrained(job.model, local_files_only=True)
    trainer: Any = make_trainer(job, tokenizer)
    (row,) = trainer.train_dataset
    return {name: row[f"{name}_ids"] for name in ("prompt", "chosen", "rejected")}


def drawn(job: TrainJob, text: str) -> list[int]:
    """Return what an engine would have drawn, with the line feed that a template may add."""
    tokenizer = chat_of(job).tokenizer
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]


@pytest.mark.parametrize(
    ("family", "turns"),
    [
        ("qwen3", {}),
        ("qwen3", {"values": OFF}),
        ("qwen3", {"thought": "own"}),
        ("qwen3_instruct_2507", {}),
        ("qwen3_instruct_2507", {"thought": "own"}),
        ("deepseek_r1_distill", {"thought": "own"}),
    ],
)
def test_trl_trains_what_was_prompted_and_drawn(tiny_policy, tmp_path, family, turns):
    job = job_of(tmp_path, tiny_policy, family, **turns)
    tokens = prepared(job)
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


def test_the_turn_as_the_template_renders_it_has_an_empty_thought(tiny_policy, tmp_path):
    job = job_of(tmp_path, tiny_policy, "qwen3", thought="template")
    text = chat_of(job).tokenizer.decode(prepared(job)["chosen"])
    assert text == "<think>\n\n</think>\n\n5<|im_end|>\n"


def test_an_answer_alone_cannot_follow_a_thought_that_was_begun(tiny_policy, tmp_path):
    job = job_of(tmp_path, tiny_policy, "deepseek_r1_distill")
    with pytest.raises(TrainingError, match=r"set training.thought to own"):
        prepared(job)


def test_a_job_comes_back_with_its_turns_and_one_without_says_nothing_of_them(
    tiny_policy, tmp_path
):
    job = job_of(tmp_path, tiny_policy, "qwen3", values=OFF, tags=TAGS, thought="own")
    path = tmp_path / "job.json"
    path.write_text(job_json(job))
    assert read_job(path) == job
    assert "turns" not in job_json(replace(job, turns=TurnForm()))


def test_messages_are_measured_as_they_are_trained(tiny_policy, tmp_path):
    job = job_of(tmp_path, tiny_policy, "qwen3")
    answer = Message(role="assistant", content="5")
    prompt, said = chat_of(job).parted((*PAIR.prompt, answer))
    tokens = prepared(job)
    assert (prompt, said) == (tokens["prompt"], tokens["chosen"][: len(said)])


def family_job(folder: Path, name: str, method: str, thought: str = "none") -> TrainJob:
    """Return a training of one row on a family's stand-in, whose weights are random."""
    from transformers import AutoModelForCausalLM

    family, _, config = begin_family(name, folder / name)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
    row = {"prompt": turn_of("user", ASKED), "chosen": turn_of("assistant", CHOSEN)}
    if method == "dpo":
        row["rejected"] = turn_of("assistant", REJECTED)
    else:
        row["completion"] = row.pop("chosen")
    pl.DataFrame([row]).write_parquet(folder / "rows.parquet")
    return TrainJob(
        method=method,
        model=folder / name,
        reference=None,
        data=(folder / "rows.parquet",),
        output=folder / "work",
        settings=DPO if method == "dpo" else SFT,
        seed=1,
        turns=TurnForm(thought=thought),
        template=ALPACA if family.template is None else None,
    )


def learned(job: TrainJob) -> dict[str, list[int]]:
    """Return the tokens that TRL's trainer has of the one row's answers, with the prompt's."""
    from lpfloop.policies.trainers.trl_trainer import make_trainer

    write_job(job)
    trainer: Any = make_trainer(job, load_tokenizer(job.model, job.template))
    (row,) = trainer.train_dataset
    if job.method == "sft":
        begin = row["labels"].count(-100)
        return {"prompt": row["input_ids"][:begin], CHOSEN: row["labels"][begin:]}
    return {"prompt": row["prompt_ids"], CHOSEN: row["chosen_ids"], REJECTED: row["rejected_ids"]}


@pytest.mark.parametrize("method", ["dpo", "sft"])
@pytest.mark.parametrize("name", ["llama-1-base", "gemma-2", "qwen-3", "glm-4"])
def test_every_family_learns_to_end_what_it_says(tmp_path, name, method):
    job = family_job(tmp_path, name, method)
    found, chat = learned(job), chat_of(job)
    end = chat.tokenizer.convert_tokens_to_ids(FAMILIES[name].end)
    asked = Message(role="user", content=ASKED)
    assert found.pop("prompt") == list(chat.prompt((asked,)))
    for text, ids in found.items():
        _, answer = chat.parted((asked, Message(role="assistant", content=text)))
        assert ids[: len(answer)] == answer
        assert answer[-1] == end
        assert not chat.tokenizer.decode(ids[len(answer) :]).strip()


def test_a_turn_as_the_template_renders_it_is_ended_too(tmp_path):
    job = family_job(tmp_path, "glm-4", "dpo", "template")
    tokenizer = load_tokenizer(job.model)
    assert learned(job)[CHOSEN][-1] == tokenizer.convert_tokens_to_ids("<|user|>")
