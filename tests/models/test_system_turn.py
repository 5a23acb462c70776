"""Without a system turn in the template, its text joins the user's: in sampling and training."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainings import TURN, make_model, sft_job, sha256, turn

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.canary import prove, read_canary
from lpfloop.policies.engines.chat import ChatTokenizer, fold_system
from lpfloop.policies.engines.chat_template import fold_system_turn
from lpfloop.policies.engines.transformers_engine import TransformersEngine
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import train
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
SILENT = (
    "{% for message in messages %}{% if message.role == 'user' %}<|user|>{{ message.content }}"
    "{% elif message.role == 'assistant' %}<|assistant|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WITHOUT = {"gemma": GEMMA, "silent": SILENT}


def conversation(*roles_and_texts: str) -> tuple[Message, ...]:
    pairs = zip(roles_and_texts[::2], roles_and_texts[1::2], strict=True)
    return tuple(Message(role=role, content=content) for role, content in pairs)


ASKED = conversation("system", "Be brief.", "user", "Who?", "assistant", "I.", "user", "Why?")
USERS = conversation("user", "Be brief.\n\nWho?", "assistant", "I.", "user", "Why?")


def tokenizer_of(folder: Path, template: str):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    return tokenizer


def test_prompt_of_system_turn(subtests, tiny_policy):
    for family, template in WITHOUT.items():
        with subtests.test(family=family):
            plain = tokenizer_of(tiny_policy, template)
            turns = [{"role": m.role, "content": m.content} for m in USERS]
            meant = plain.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
            chat = ChatTokenizer(tokenizer_of(tiny_policy, template), tiny_policy)
            assert list(chat.prompt(ASKED)) == meant
            assert list(chat.prompt(USERS)) == meant
            answer = conversation("assistant", "So.")
            assert chat.split_answer((*ASKED, *answer)) == chat.split_answer((*USERS, *answer))
            assert fold_system_turn(ASKED) == USERS
            assert fold_system(chat.tokenizer)
            assert list(chat.prompt(ASKED)) == meant


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A model whose template has no system turn, and demonstrations with and without one."""
    folder = tmp_path_factory.mktemp("world")
    make_model(folder / "model", dtype="float16")
    template = SILENT
    (folder / "model" / "chat_template.jinja").write_text(template)
    users = [[*turn("system", "Count."), *turn("user", f"From {i}.")] for i in range(32)]
    joined = [turn("user", f"Count.\n\nFrom {i}.") for i in range(32)]
    answers = [turn("assistant", f"up {i} {i + 1}") for i in range(32)]
    for name, prompts in (("demonstrations", users), ("folded", joined)):
        columns = {"prompt": pa.array(prompts, TURN), "completion": pa.array(answers, TURN)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def jobs(world: Path, output: Path) -> list[TrainJob]:
    """The same training twice: with system turns, and with their text in the user's turns."""
    return [
        replace(
            sft_job(world, output / name / "work"),
            data=(world / f"{name}.parquet",),
        )
        for name in ("demonstrations", "folded")
    ]


def test_training_reads_sampled_text(world, tmp_path) -> None:
    results = []
    for job in jobs(world, tmp_path):
        job.output.parent.mkdir()
        results.append(train(job, log=job.output.parent / "train.log"))
    one, other = (sha256(result.output / "model.safetensors") for result in results)
    assert one == other
    rows = read_canary(results[0].output.parent)
    assert rows[0].messages[0].role == "system"
    engine = TransformersEngine(str(results[0].output), EngineConfig(kind="transformers"))
    try:
        prove(engine.logprobs, rows)
    finally:
        engine.close()
    template = "chat_template.jinja"
    assert sha256(results[0].output / template) == sha256(world / "model" / template)
