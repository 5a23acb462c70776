"""A thought is parted from its answer, and what is trained is what was prompted and said."""

from dataclasses import replace
from functools import cache

import pytest
from thinking import BAR, ENDS, TAGS, TEMPLATES, thinking_model

from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.engines.thinking import (
    KNOWN,
    ChatForm,
    Thinking,
    begins_inside,
    said,
    with_thought,
)
from lpfloop.stores.records import Message

AFTER = Thinking(tags=TAGS, begun=False)
WITHIN = Thinking(tags=TAGS, begun=True)
QUESTION = (Message(role="user", content="What is 2 + 3?"),)
OFF = ChatForm(values={"enable_thinking": False})
THOUGHT = "2 and 3 are 5."


@pytest.mark.parametrize(
    ("thinking", "text", "ended", "parts"),
    [
        (AFTER, "5", True, ("5", "", "stop")),
        (AFTER, "5", False, ("5", "", "length")),
        (AFTER, "<think>\nHm.\n</think>\n\n5 \n", True, ("5 \n", "Hm.", "stop")),
        (AFTER, "\n<think>Hm.</think>5", False, ("5", "Hm.", "length")),
        (AFTER, "<think>\n\n</think>\n\n5", True, ("5", "", "stop")),
        (AFTER, "<think>\nHm. And", False, ("", "Hm. And", "truncated_thinking")),
        (AFTER, "<think>\nHm.", True, ("", "Hm.", "stop")),
        (AFTER, "<think>a</think>b</think>c", True, ("b</think>c", "a", "stop")),
        (AFTER, "5, as </think> says", True, ("5, as </think> says", "", "stop")),
        (WITHIN, "Hm.\n</think>\n\n5", True, ("5", "Hm.", "stop")),
        (WITHIN, "<think>Hm.</think>5", True, ("5", "Hm.", "stop")),
        (WITHIN, "Hm. And", False, ("", "Hm. And", "truncated_thinking")),
        (None, "<think>Hm.</think>5", True, ("<think>Hm.</think>5", "", "stop")),
    ],
)
def test_a_thought_is_parted_from_the_answer_after_it(thinking, text, ended, parts):
    told = said(text, thinking, ended=ended)
    assert (told.text, told.reasoning, told.finish_reason) == parts


def test_a_text_that_was_asked_to_stop_an_answer_ends_it_but_not_inside_a_thought():
    assert said("5", AFTER, ended=False, stopped=True).finish_reason == "stop"
    inside = said("<think>Hm.", AFTER, ended=False, stopped=True)
    assert inside.finish_reason == "truncated_thinking"


@pytest.mark.parametrize("tags", KNOWN)
@pytest.mark.parametrize("begun", [True, False])
def test_an_answer_put_after_its_thought_is_parted_again(tags, begun):
    thinking = Thinking(tags=tags, begun=begun)
    told = said(with_thought("5", THOUGHT, thinking), thinking, ended=True)
    assert (told.text, told.reasoning) == ("5", THOUGHT)


@pytest.fixture(scope="module")
def chats(tiny_policy, tmp_path_factory):
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("thinking")
    folders = cache(lambda family: thinking_model(tiny_policy, root / family, family))

    def made(family, form=None):
        from transformers import AutoTokenizer

        folder = folders(family)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return ChatTokenizer(tokenizer, folder, form or ChatForm())

    made.folders = folders
    return made


def answered(text):
    return (*QUESTION, Message(role="assistant", content=text))


def sampled(chat, text):
    """Return the tokens of a prompt, and of what a model drew after it, with its end."""
    drawn = chat.tokenizer.encode(text, add_special_tokens=False)
    return list(chat.prompt(QUESTION)), [*drawn, chat.tokenizer.eos_token_id]


def shown(chat, text, form):
    """Return how a template renders what a model drew."""
    prompt, drawn = sampled(chat, text)
    assert chat.parted(answered(text)) == (prompt, drawn), form
    return chat.tokenizer.decode([*prompt, *drawn])


MODES = [
    ("qwen3", ChatForm(), "5", "assistant\n5<|im_end|>"),
    ("qwen3", OFF, "5", "assistant\n<think>\n\n</think>\n\n5<|im_end|>"),
    ("qwen3", ChatForm(), "own", f"assistant\n<think>\n{THOUGHT}\n</think>\n\n5<|im_end|>"),
    ("qwen3_instruct_2507", ChatForm(), "5", "assistant\n5<|im_end|>"),
    (
        "deepseek_r1_distill",
        ChatForm(),
        "own",
        f"<{BAR}Assistant{BAR}><think>\n{THOUGHT}\n</think>\n\n5{ENDS['deepseek_r1_distill']}",
    ),
]


@pytest.mark.model
@pytest.mark.parametrize(("family", "form", "answer", "ending"), MODES)
def test_what_is_trained_is_what_was_prompted_and_drawn(chats, family, form, answer, ending):
    chat = chats(family, form)
    text = with_thought("5", THOUGHT, chat.thinking) if answer == "own" else answer
    assert shown(chat, text, form).endswith(ending)
    _, drawn = sampled(chat, text)
    told = chat.said(drawn)
    assert (told.text, told.finish_reason) == ("5", "stop")
    assert told.reasoning == (THOUGHT if answer == "own" else "")


@pytest.mark.model
def test_a_template_as_it_is_adds_an_empty_thought(chats):
    prompt, answer = chats("qwen3", ChatForm(as_said=False)).parted(answered("5"))
    chat = chats("qwen3")
    assert prompt == list(chat.prompt(QUESTION))
    assert chat.tokenizer.decode(answer) == "<think>\n\n</think>\n\n5<|im_end|>"


@pytest.mark.model
def test_a_conversation_goes_on_as_the_template_says(chats):
    turns = (*answered("5"), Message(role="user", content="And 4 + 4?"))
    assert chats("qwen3").prompt(turns) == chats("qwen3", ChatForm(as_said=False)).prompt(turns)


@pytest.mark.model
def test_only_a_template_that_opens_a_thought_begins_a_turn_inside_it(chats):
    from lpfloop.configs.engines import EngineConfig

    for family in TEMPLATES:
        inside = family == "deepseek_r1_distill"
        assert chats(family).thinking.begun == inside
        assert begins_inside(chats.folders(family), EngineConfig()) == inside


@pytest.mark.model
def test_a_value_that_the_template_does_not_read_is_refused_with_those_it_reads(chats):
    wrong = replace(OFF, values={"enable_thinkin": False})
    with pytest.raises(EngineError, match=r"has no enable_thinkin; it reads enable_thinking$"):
        chats("qwen3", wrong)


@pytest.mark.model
def test_a_model_that_has_no_tags_says_all_it_says(tiny_policy):
    from transformers import AutoTokenizer

    chat = ChatTokenizer(AutoTokenizer.from_pretrained(tiny_policy), tiny_policy)
    assert chat.thinking is None
    text = "<think>2</think>3"
    assert chat.said(chat.tokenizer.encode(text, add_special_tokens=False)).text == text
