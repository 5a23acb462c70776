"""Models of common families load in the format of their published files."""

from pathlib import Path

import pytest
from models import FAMILIES, FAMILY_PROMPTS, _chat_text, base_text, begin_family, family_answers

from lpfloop.configs.engines import EngineConfig
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.chat_template import ALPACA, load_tokenizer, require_chat
from lpfloop.policies.engines.engine import (
    EngineError,
)
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

ORDINARY = ("gemma-2", "llama-1-base", "qwen-2.5")


def each(names):
    return [
        name if name in ORDINARY else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


@pytest.mark.parametrize("name", each(FAMILIES))
def test_a_trained_answer_follows_its_prompt(tmp_path: Path, name: str) -> None:
    family, _, _ = begin_family(name, tmp_path)
    template = ALPACA if family.template is None else None
    chat = ChatTokenizer(load_tokenizer(tmp_path, template), tmp_path)
    for row in FAMILY_PROMPTS:
        told = (Message(role="user", content=_chat_text(row)),)
        said = Message(role="assistant", content=family_answers(row)[0])
        prompt, answer = chat.split_answer((*told, said))
        assert prompt == list(chat.prompt(told))
        assert answer[-1] == chat.tokenizer.convert_tokens_to_ids(family.end)
        assert chat.tokenizer.decode(answer, skip_special_tokens=True).strip() == said.content


def test_a_base_model_reads_alpaca(tmp_path: Path) -> None:
    """In both of its forms, after the tokenizer's token for the beginning of a text, if any."""
    _, own, _ = begin_family("llama-1-base", tmp_path)
    chat = ChatTokenizer(load_tokenizer(tmp_path, ALPACA), tmp_path)
    for row in FAMILY_PROMPTS:
        parts = (row["instruction"], row["input"]) if "input" in row else (row["question"],)
        text = "\n\n### Input:\n".join(parts)
        prompt = chat.prompt((Message(role="user", content=text),))
        assert own.decode(prompt, skip_special_tokens=True) == base_text(row)
        assert list(prompt) == own(base_text(row)).input_ids


def test_a_base_model_without_a_template(tmp_path: Path) -> None:
    begin_family("llama-1-base", tmp_path)
    with pytest.raises(EngineError, match=r"engine\.template=alpaca"):
        require_chat(tmp_path, EngineConfig())
    require_chat(tmp_path, EngineConfig(template="alpaca"))
