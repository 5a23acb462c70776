"""A model whose template has no system turn gets it in the user's: sampled and trained alike."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainings import DPO, TURN, make_model, sft_job, sha256, turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.daemon.model_check import model_findings
from lpfloop.policies.engines.canary import prove, read_canary
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.system_turn import fold_system, folded, folder_folds
from lpfloop.policies.engines.transformers_engine import TransformersEngine
from lpfloop.policies.trainers.train_model import TrainJob, train
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
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}"
)
SILENT = (
    "{% for message in messages %}{% if message.role == 'user' %}<|user|>{{ message.content }}"
    "{% elif message.role == 'assistant' %}<|assistant|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = '' %}{% endif %}"
    "{% for message in loop_messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system_message if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)
WITHOUT = {"gemma": GEMMA, "mistral": MISTRAL, "silent": SILENT}


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


@pytest.mark.parametrize("family", WITHOUT)
def test_the_system_turn_begins_the_users_first(tiny_policy, family) -> None:
    plain = tokenizer_of(tiny_policy, WITHOUT[family])
    turns = [{"role": m.role, "content": m.content} for m in USERS]
    meant = plain.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    chat = ChatTokenizer(tokenizer_of(tiny_policy, WITHOUT[family]), tiny_policy)
    assert list(chat.prompt(ASKED)) == meant
    assert list(chat.prompt(USERS)) == meant
    answer = conversation("assistant", "So.")
    assert chat.parted((*ASKED, *answer)) == chat.parted((*USERS, *answer))
    assert folded(ASKED) == USERS
    assert fold_system(chat.tokenizer)
    assert list(chat.prompt(ASKED)) == meant


def test_a_template_that_shows_a_system_turn_is_left_as_it_is(tiny_policy) -> None:
    tokenizer = tokenizer_of(tiny_policy, LLAMA2)
    assert not fold_system(tokenizer)
    assert tokenizer.chat_template == LLAMA2
    chat = ChatTokenizer(tokenizer, tiny_policy)
    assert "<<SYS>>\nBe brief." in tokenizer.decode(chat.prompt(ASKED))


@pytest.fixture(scope="module", params=["mistral", "silent"])
def world(request, tmp_path_factory) -> Path:
    """A model whose template has no system turn, and demonstrations with one, and without."""
    folder = tmp_path_factory.mktemp(request.param)
    make_model(folder / "model", dtype="float16")
    template = WITHOUT[request.param].replace("{{ bos_token }}", "")
    (folder / "model" / "chat_template.jinja").write_text(template)
    users = [[*turn("system", "Count."), *turn("user", f"From {i}.")] for i in range(32)]
    joined = [turn("user", f"Count.\n\nFrom {i}.") for i in range(32)]
    answers = [turn("assistant", f"up {i} {i + 1}") for i in range(32)]
    for name, prompts in (("demonstrations", users), ("folded", joined)):
        columns = {"prompt": pa.array(prompts, TURN), "completion": pa.array(answers, TURN)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    for name, prompts in (("pairs", users), ("folded-pairs", joined)):
        columns = {
            "prompt": pa.array(prompts, TURN),
            "chosen": pa.array(answers, TURN),
            "rejected": pa.array(answers[::-1], TURN),
        }
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def jobs(world: Path, output: Path, method: str) -> list[TrainJob]:
    """The same training, of system turns and of what they are folded to."""
    if method == "sft":
        files = ("demonstrations", "folded")
        settings = sft_job(world, output).settings
    else:
        files, settings = ("pairs", "folded-pairs"), DPO
    return [
        TrainJob(
            method=method,
            model=world / "model",
            reference=None,
            data=(world / f"{name}.parquet",),
            output=output / name / "work",
            settings=settings,
            seed=1,
        )
        for name in files
    ]


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_training_reads_the_text_that_is_sampled(world, tmp_path, method) -> None:
    results = []
    for job in jobs(world, tmp_path, method):
        job.output.parent.mkdir()
        results.append(train(job, log=job.output.parent / "train.log"))
    one, other = (sha256(result.output / "model.safetensors") for result in results)
    assert one == other
    rows = read_canary(results[0].output.parent)
    assert rows[0].messages[0].role == "system"
    engine = TransformersEngine(str(results[0].output), EngineConfig(kind="transformers"))
    try:
        prove(engine, rows)
    finally:
        engine.close()
    template = "chat_template.jinja"
    assert sha256(results[0].output / template) == sha256(world / "model" / template)


def test_the_doctor_names_a_model_that_folds(tiny_policy, tmp_path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_policy, model)
    for template, folds in ((GEMMA, True), (LLAMA2, False)):
        (model / "chat_template.jinja").write_text(template)
        assert folder_folds(model) is folds
        config = load_config(None, None, [f"policy.model={model}"], {})
        (found,) = [f for f in model_findings(config) if f.about == "policy model"]
        assert ("its template has no system turn" in found.detail) is folds
