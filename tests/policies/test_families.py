"""Models of the families that people have on their disks, as they lie there."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import FAMILIES, PROMPTS, answers, asked, base_text, begin_family
from safetensors.torch import save_file
from trainings import DPO

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.chat_template import ALPACA, load_tokenizer, require_template
from lpfloop.policies.engines.engine import (
    Batch,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from lpfloop.policies.engines.transformers_engine import TransformersEngine
from lpfloop.policies.trainers.trained_model import assemble_model
from lpfloop.policies.trainers.trained_turns import chat_of
from lpfloop.policies.trainers.trainer_job import TrainJob
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

ORDINARY = ("gemma-2",)
"""Families of the ordinary suite; each of the others takes as long."""
CHATS = tuple(name for name, family in FAMILIES.items() if family.template)


def each(names):
    """Parametrise over families, slow but for those of the ordinary suite."""
    return [
        name if name in ORDINARY else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


def drawn(engine) -> list[Completion]:
    requests = [
        Request(request_id=str(i), messages=(Message(role="user", content=asked(row)),), seed=i)
        for i, row in enumerate(PROMPTS)
    ]
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=48)
    (result,) = engine.generate([Batch(key="a", requests=tuple(requests), sampling=sampling)])
    return list(result.completions)


@pytest.mark.parametrize("name", each(CHATS))
def test_a_stand_in_ends_what_it_says_and_is_right_at_times(family, name) -> None:
    engine = TransformersEngine(str(family(name)), EngineConfig(kind="transformers"))
    said = drawn(engine)
    engine.close()
    assert sum(c.finish_reason == "stop" for c in said) > 0.9 * len(said)
    for kind in (0, 1):
        both = zip(said, PROMPTS, strict=True)
        like = [c.text.strip().endswith(answers(row)[kind]) for c, row in both]
        assert 3 <= sum(like) < len(said)


@pytest.mark.parametrize("name", CHATS)
def test_a_prompt_is_what_transformers_makes_of_it(tmp_path: Path, name: str) -> None:
    _, own, _ = begin_family(name, tmp_path)
    chat = ChatTokenizer(load_tokenizer(tmp_path), tmp_path)
    for row in PROMPTS:
        turns = [{"role": "user", "content": asked(row)}]
        meant = own.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert list(chat.prompt((Message(role="user", content=asked(row)),))) == meant


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_is_trained_behind_what_was_prompted(tmp_path: Path, name: str) -> None:
    family, _, _ = begin_family(name, tmp_path)
    template = ALPACA if family.template is None else None
    chat = ChatTokenizer(load_tokenizer(tmp_path, template), tmp_path)
    for row in PROMPTS:
        told = (Message(role="user", content=asked(row)),)
        said = Message(role="assistant", content=answers(row)[0])
        prompt, answer = chat.parted((*told, said))
        assert prompt == list(chat.prompt(told))
        assert answer[-1] == chat.tokenizer.convert_tokens_to_ids(family.end)
        assert chat.tokenizer.decode(answer, skip_special_tokens=True).strip() == said.content


@pytest.mark.parametrize("name", FAMILIES)
def test_a_cut_answer_is_judged_without_the_end_of_a_finished_one(tmp_path, name) -> None:
    family, _, _ = begin_family(name, tmp_path)
    template = ALPACA if family.template is None else None
    chat = ChatTokenizer(load_tokenizer(tmp_path, template), tmp_path)
    end = chat.tokenizer.convert_tokens_to_ids(family.end)
    for row in PROMPTS[::6]:
        told = Message(role="user", content=asked(row))
        turns = (told, Message(role="assistant", content=answers(row)[0]))
        finished = chat.judged(turns, sees_end=True)
        cut = chat.judged(turns, sees_end=True, ended=False)
        assert cut == chat.judged(turns, sees_end=False)
        assert finished[: len(cut) + 1] == [*cut, end]
        said = chat.tokenizer.decode(cut[len(chat.prompt((told,))) :], skip_special_tokens=True)
        assert said.strip() == answers(row)[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trained_models_folder_divides_answers_as_its_trainer_did(tmp_path, name) -> None:
    """With what was named for the model before it, and without, where it was written down."""
    family, _, _ = begin_family(name, tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "saved")
    save_file({"weight": torch.zeros(1)}, tmp_path / "saved" / "model.safetensors")
    template = ALPACA if family.template is None else None
    job = TrainJob(
        method="dpo",
        model=tmp_path / "old",
        reference=None,
        data=(),
        output=tmp_path,
        settings=DPO,
        seed=1,
        template=template,
    )
    assemble_model(job, tmp_path / "saved")
    chats = [
        chat_of(job),
        *(
            chat_of(replace(job, model=tmp_path / "model", template=given))
            for given in {None, template}
        ),
    ]
    system = Message(role="system", content="Be brief.")
    for row in PROMPTS[::6]:
        told = (Message(role="user", content=asked(row)),)
        said = Message(role="assistant", content=answers(row)[0])
        for turns in ((*told, said), (system, *told, said)):
            first, *others = (chat.parted(turns) for chat in chats)
            assert all(other == first for other in others)


@pytest.mark.parametrize("name", ["llama-1-base", "qwen-2.5"])
def test_a_base_model_reads_the_prompt_of_stanford_alpaca(tmp_path: Path, name: str) -> None:
    """In both of its forms, behind the token with which its tokenizer begins a text, if any."""
    _, own, _ = begin_family(name, tmp_path)
    chat = ChatTokenizer(load_tokenizer(tmp_path, ALPACA), tmp_path)
    for row in PROMPTS:
        parts = (row["instruction"], row["input"]) if "input" in row else (row["question"],)
        text = "\n\n### Input:\n".join(parts)
        prompt = chat.prompt((Message(role="user", content=text),))
        assert own.decode(prompt, skip_special_tokens=True) == base_text(row)
        assert list(prompt) == own(base_text(row)).input_ids


def test_a_base_model_without_a_template_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    begin_family("llama-1-base", tmp_path)
    with pytest.raises(EngineError, match=r"no chat template.*engine\.template=alpaca"):
        require_template(tmp_path, None)
    require_template(tmp_path, "alpaca")
