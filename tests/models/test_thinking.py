"""With the templates of thinking models, training uses the prompted and sampled tokens."""

from dataclasses import replace
from functools import cache

import pytest
from models import BAR, ENDS, thinking_model

from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.engines.thinking import (
    ChatForm,
    with_thought,
)
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

QUESTION = (Message(role="user", content="What is 2 + 3?"),)
OFF = ChatForm(values={"enable_thinking": False})
THOUGHT = "2 and 3 are 5."


@pytest.fixture(scope="module")
def chats(tiny_policy, tmp_path_factory):
    root = tmp_path_factory.mktemp("thinking")
    folders = cache(lambda family: thinking_model(tiny_policy, root / family, family))

    def made(family, form=None):
        from transformers import AutoTokenizer

        folder = folders(family)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return ChatTokenizer(tokenizer, folder, form or ChatForm())

    return made


def answered(text):
    return (*QUESTION, Message(role="assistant", content=text))


def sampled(chat, text):
    """Return the tokens of a prompt and of the sampled answer, including its end token."""
    drawn = chat.tokenizer.encode(text, add_special_tokens=False)
    return list(chat.prompt(QUESTION)), [*drawn, chat.tokenizer.eos_token_id]


MODES = [
    ("qwen3", ChatForm(), "5", "assistant\n5<|im_end|>"),
    ("qwen3", OFF, "5", "assistant\n<think>\n\n</think>\n\n5<|im_end|>"),
    ("qwen3", ChatForm(), "own", f"assistant\n<think>\n{THOUGHT}\n</think>\n\n5<|im_end|>"),
    (
        "deepseek_r1_distill",
        ChatForm(),
        "own",
        f"<{BAR}Assistant{BAR}><think>\n{THOUGHT}\n</think>\n\n5{ENDS['deepseek_r1_distill']}",
    ),
]


def test_trained_tokens_equal_sampled(chats, subtests):
    for family, form, answer, ending in MODES:
        with subtests.test(family, form=form, answer=answer):
            chat = chats(family, form)
            text = with_thought("5", THOUGHT, chat.thinking) if answer == "own" else answer
            prompt, drawn = sampled(chat, text)
            assert chat.split_answer(answered(text)) == (prompt, drawn)
            assert chat.tokenizer.decode([*prompt, *drawn]).endswith(ending)
            told = chat.answer(drawn)
            assert (told.text, told.finish_reason) == ("5", "stop")
            assert told.reasoning == (THOUGHT if answer == "own" else "")


def test_a_value_that_is_not_read_is_refused(chats):
    wrong = replace(OFF, values={"enable_thinkin": False})
    with pytest.raises(EngineError, match="enable_thinking"):
        chats("qwen3", wrong)
