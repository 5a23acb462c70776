"""Fields next to a prompt that change its meaning become part of the prompt, or are refused."""

import json

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import read_prompts

TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TURNS += [{"role": "user", "content": "q"}]
SHARED = [{"from": "human", "value": "q"}]
WHOLE = [("user", "a"), ("assistant", "b"), ("user", "q")]


def read(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    (prompt,) = read_prompts(path)
    return [(turn.role, turn.content) for turn in prompt.messages]


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        ({"system": "s", "question": "q"}, [("system", "s"), ("user", "q")]),
        ({"system_prompt": "s", "prompt": "q"}, [("system", "s"), ("user", "q")]),
        ({"system": "s", "input": "q"}, [("system", "s"), ("user", "q")]),
        ({"system": "s", "conversations": SHARED}, [("system", "s"), ("user", "q")]),
        ({"system": "", "history": [], "input": None, "prompt": "q"}, [("user", "q")]),
        (
            {"system": "s", "messages": [{"role": "system", "content": "s"}, *TURNS]},
            [("system", "s"), *WHOLE],
        ),
        ({"history": [["a", "b"]], "instruction": "q"}, WHOLE),
        ({"history": TURNS[:2], "prompt": "q"}, WHOLE),
        ({"context": TURNS}, WHOLE),
        ({"context": TURNS[:2], "question": "q"}, WHOLE),
        (
            {"system": "s", "history": [["a", "b"]], "instruction": "q", "input": "i"},
            [("system", "s"), *WHOLE[:2], ("user", "q\n\ni")],
        ),
        ({"instruction": "q", "context": "c"}, [("user", "q\n\nc")]),
        ({"prompt": "q: i", "input": "i"}, [("user", "q: i")]),
        ({"prompt": "\n\nHuman: a\n\nAssistant: b\n\nHuman: q\n\nAssistant: "}, WHOLE),
        ({"prompt": "Human: is this a word?"}, [("user", "Human: is this a word?")]),
    ],
)
def test_fields_become_turns(row, turns, tmp_path):
    assert read(tmp_path, row) == turns


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"system": "s", "messages": [{"role": "system", "content": "t"}, *TURNS]}, "'system'"),
        ({"system": ["s"], "prompt": "q"}, "'system' must be a text"),
        ({"history": "a", "prompt": "q"}, "'history' must be a list"),
        ({"history": [["a"]], "prompt": "q"}, "'history[1]'"),
        ({"history": ["a", "b"], "prompt": "q"}, "'history[1]'"),
        ({"context": {"a": 1}, "prompt": "q"}, "'context'"),
        ({"messages": TURNS, "input": "else"}, "'input' differs"),
        ({"prompt": "q", "tools": [{"name": "f"}]}, "'tools'"),
        ({"prompt": "q", "images": ["a.png"]}, "'images'"),
        ({"messages": [{**TURNS[0], "tool_calls": [{}]}, *TURNS[1:]]}, "'messages[1]' has"),
    ],
)
def test_others_refused(row, said, tmp_path):
    with pytest.raises(InputError) as refused:
        read(tmp_path, row)
    assert f"line 1: {said}" in str(refused.value)


def test_numbers_as_texts(tmp_path):
    path = tmp_path / "rows.jsonl"
    for given, text in ((5, "5"), (5.0, "5"), (0.5, "0.5"), (10**400, str(10**400))):
        path.write_text(json.dumps({"prompt": "q", "reference": given}))
        assert read_prompts(path)[0].reference == text
