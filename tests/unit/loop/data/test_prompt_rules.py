"""lpfloop filters prompts by rule and by judgment, once a run, and counts each outcome."""

from dataclasses import replace

from rows import PROMPT

from lpfloop.configs.judging import RuleFilters
from lpfloop.loop.data.prompt_rules import Rules
from lpfloop.stores.records import Message, Prompt


def prompt(*turns: str, role: str = "user") -> Prompt:
    messages = tuple(Message(role=role, content=turn) for turn in turns)
    return replace(PROMPT, prompt_id=f"prompt-{'-'.join(turns)}", messages=messages)


def fates(rules: RuleFilters, *prompts: Prompt) -> list[str]:
    return Rules.from_config(rules).fates(prompts)


def test_length_without_the_system():
    rules = RuleFilters(min_chars=3, max_chars=5)
    named = replace(
        PROMPT, messages=(Message(role="system", content="Be brief."), *prompt("hi").messages)
    )
    found = fates(rules, prompt("hi"), prompt("  hi  "), prompt("hello"), prompt("hello!"), named)
    assert found == ["too_short", "too_short", "kept", "too_long", "too_short"]


def test_copies_but_not_near_copies():
    found = fates(
        RuleFilters(duplicates=True),
        prompt("What is 3 + 4?"),
        prompt("  what is\n3 + 4? "),
        prompt("What is 3 - 4?"),
        prompt("What is \uff13 + 4?"),
        prompt("What is", "3 + 4?"),
    )
    assert found == ["kept", "duplicate", "kept", "duplicate", "kept"]


def test_script_of_most_letters():
    for text, scripts, fate in [
        ("Write a poem.", ("latin",), "kept"),
        ("写一首诗。", ("latin",), "other_script"),
        ("写一首诗。", ("latin", "Han"), "kept"),
        ("Напиши poem.", ("latin",), "other_script"),
        ("用Python实现binary search tree的插入", ("han",), "kept"),
        ("翻译：The gentleman attended the meeting.", ("han",), "other_script"),
        ("翻译：The gentleman attended the meeting.", ("han", "latin"), "kept"),
        ("3 + 4 = ?", ("latin",), "kept"),
        ("これは何ですか", ("hiragana",), "kept"),
    ]:
        assert fates(RuleFilters(scripts=scripts), prompt(text)) == [fate]
