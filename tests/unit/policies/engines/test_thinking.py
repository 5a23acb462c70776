"""Separating a thought from its answer."""

from itertools import product

from models import TAGS

from lpfloop.policies.engines.thinking import (
    KNOWN,
    Thinking,
    parse_answer,
    with_thought,
)

AFTER = Thinking(tags=TAGS, begun=False)
WITHIN = Thinking(tags=TAGS, begun=True)
THOUGHT = "2 and 3 are 5."


SAID = [
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
]


def test_thought_and_answer(subtests):
    for thinking, text, ended, parts in SAID:
        with subtests.test(text, thinking=thinking):
            told = parse_answer(text, thinking, ended=ended)
            assert (told.text, told.reasoning, told.finish_reason) == parts


def test_a_stop_text():
    assert parse_answer("5", AFTER, ended=False, stopped=True).finish_reason == "stop"
    inside = parse_answer("<think>Hm.", AFTER, ended=False, stopped=True)
    assert inside.finish_reason == "truncated_thinking"


def test_an_answer_after_its_thought():
    for tags, begun in product(KNOWN, (True, False)):
        thinking = Thinking(tags=tags, begun=begun)
        told = parse_answer(with_thought("5", THOUGHT, thinking), thinking, ended=True)
        assert (told.text, told.reasoning) == ("5", THOUGHT)
