import json
import logging
from hashlib import sha256

import pytest

from lpfloop.configs.schema import ConfigError, PromptsConfig
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_rows import content_id
from lpfloop.loop.data.prompts import load_prompts, read_prompts, tiny_prompts
from lpfloop.loop.data.text_lines import LONGEST_LINE
from lpfloop.stores.records import Check, Message


@pytest.fixture
def file(tmp_path):
    def write(*rows, name: str = "p.jsonl"):
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines))
        return path

    return write


def refusal(path, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_prompts(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_native_row_keeps_all(file) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
    row = {
        "prompt_id": "p1",
        "task": "facts",
        "messages": messages,
        "reference": "abstract",
        "checks": [{"kind": "json_valid"}, {"kind": "max_words", "argument": "3"}],
        "split": "held-out",
        "note": "let be",
    }
    (prompt,) = read_prompts(file(row))
    assert prompt.prompt_id == "p1"
    assert (prompt.task, prompt.split, prompt.reference) == ("facts", "held-out", "abstract")
    assert prompt.messages[1] == Message(role="user", content="Hi?")
    assert prompt.checks == (
        Check(kind="json_valid", argument=""),
        Check(kind="max_words", argument="3"),
    )
    assert prompt.source == "p.jsonl"


def test_known_forms(file, subtests):
    for row, task, text, reference in [
        ({"prompt": "x"}, "general", "x", None),
        ({"prompt": [{"role": "user", "content": "x"}]}, "general", "x", None),
        ({"question": "x", "answer": "#### 3"}, "math", "x", "#### 3"),
        ({"question": "x"}, "general", "x", None),
        ({"problem": "x", "solution": "y", "level": 3}, "math", "x", "y"),
        ({"instruction": "x", "input": "", "output": "y"}, "general", "x", None),
        ({"instruction": "x", "input": "y"}, "general", "x\n\ny", None),
        ({"prompt": "x", "reference": "r", "task": "code"}, "code", "x", "r"),
        ({"question": "x", "answer": "a", "reference": "r"}, "math", "x", "r"),
    ]:
        with subtests.test(case=str(row)):
            (prompt,) = read_prompts(file(row))
            assert (prompt.task, prompt.instruction, prompt.reference) == (task, text, reference)


def test_id_depends_on_content(file) -> None:
    one = read_prompts(file({"prompt": "x"}, name="a.jsonl"))[0]
    two = read_prompts(file({"prompt": "x", "note": 1}, name="b.jsonl"), split="held-out")[0]
    assert one.prompt_id == two.prompt_id
    assert one.prompt_id == content_id(one.messages, None, (), "general")
    assert read_prompts(file({"prompt": "x", "reference": "r"}))[0].prompt_id != one.prompt_id
    assert read_prompts(file({"prompt": "x", "prompt_id": 7}))[0].prompt_id == "7"


def test_byte_order_mark_and_separators(file) -> None:
    path = file(b'\xef\xbb\xbf{"prompt": "x"}\r', b"  \r", b"", b'{"prompt": "y"}', b"")
    assert [prompt.instruction for prompt in read_prompts(path)] == ["x", "y"]
    text = "a\u2028b\u0085c"
    path = file(json.dumps({"prompt": text}, ensure_ascii=False).encode())
    assert read_prompts(path)[0].instruction == text


def test_identical_rows_collapse(file, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        prompts = read_prompts(file({"prompt": "x"}, {"prompt": "x"}, {"prompt": "y"}))
    assert [prompt.instruction for prompt in prompts] == ["x", "y"]
    assert "dropped 1 rows that repeat another one" in caplog.text


def test_bad_input(file, subtests):
    for rows, said in [
        ([], "holds no prompts"),
        ([{"prompt": "x"}, b"{nonsense"], "line 2: not valid JSON: Expecting property name"),
        ([b"[1]"], "line 1: expected a JSON object"),
        ([b'{"prompt": "x", "prompt": "y"}'], "line 1: the field 'prompt' appears twice"),
        ([{"text": "x"}], "line 1: no prompt; name its field one of messages, conversations"),
        ([{}], "the row has none"),
        ([{"prompt": "x", "question": "y"}], "both 'prompt' and 'question' hold a prompt"),
        ([{"prompt": ""}], "'prompt' is empty"),
        ([{"prompt": 3}], "'prompt' must be a text, but is a number"),
        ([{"prompt": "a\0b"}], "NUL"),
        ([b'{"prompt": "a\\ud800b"}'], "lone surrogate"),
        ([b'{"prompt": "x"}', b'{"prompt": "\xff"}'], "line 2: not UTF-8 at byte 13 of the line"),
        ([{"messages": "x"}], "'messages' must be a list of messages, but is a text"),
        ([{"messages": []}], "'messages' holds no message"),
        ([{"messages": [{"role": "assistant", "content": "x"}]}], "must end with a user message"),
        ([{"prompt": "x", "reference": True}], "'reference' must be a text, but is true or false"),
        ([{"prompt": "x", "checks": {}}], "'checks' must be a list, but is an object"),
        (
            [{"prompt": "x", "prompt_id": "1"}, {"prompt": "y"}, {"prompt": "z", "prompt_id": "1"}],
            "line 3: the id '1' belongs to another prompt on line 1",
        ),
    ]:
        with subtests.test(case=said):
            assert said in refusal(file(*rows))


def test_endless_line_and_missing_files(file, tmp_path) -> None:
    path = file(b'{"prompt": "' + b"x" * LONGEST_LINE + b'"}')
    assert "line 1: longer than" in refusal(path)
    path.unlink()
    assert "no such file" in refusal(tmp_path / "none.jsonl")
    assert "holds no data files" in refusal(tmp_path)


# prompts of a run


def test_held_out_file(file) -> None:
    train = file({"prompt": "x"}, name="a.jsonl")
    other = file({"prompt": "y"}, name="b.jsonl")
    config = PromptsConfig(source=str(train), held_out=str(other))
    assert [p.split for p in load_prompts(config, seed=0)] == ["train", "held-out"]
    with pytest.raises(InputError, match="is also in"):
        load_prompts(PromptsConfig(source=str(train), held_out=str(train)), seed=0)
    with pytest.raises(InputError, match="no prompts to train on"):
        load_prompts(PromptsConfig(source=str(file({"prompt": "x", "split": "held-out"}))), seed=0)
    with pytest.raises(ConfigError, match=r"prompts\.dev is unused"):
        load_prompts(PromptsConfig(source="tiny", dev="own.jsonl"), seed=0)


def test_source_in_the_home_folder(file, tmp_path, environ) -> None:
    environ["HOME"] = str(tmp_path)
    file({"prompt": "x"}, name="p.jsonl")
    (prompt,) = load_prompts(PromptsConfig(source="~/p.jsonl", held_out_share=0.0), seed=0)
    assert prompt.messages[0].content == "x"


def test_tiny_world() -> None:
    prompts = tiny_prompts()
    assert prompts == load_prompts(PromptsConfig(source="tiny"), seed=5)
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    assert {prompt.task for prompt in prompts} == {"math", "facts", "general"}
    assert sum(prompt.split == "train" for prompt in prompts) >= 3000
    assert sum(prompt.split == "held-out" for prompt in prompts) >= 600
    earlier = load_prompts(PromptsConfig(source="tiny", dev_share=0), seed=0)
    assert earlier == [prompt for prompt in prompts if prompt.split != "dev"]
    ids = [[prompt.prompt_id, prompt.split] for prompt in prompts if prompt.split != "dev"]
    assert (
        sha256(json.dumps(ids).encode()).hexdigest()
        == "21e71835234c2317e4fa300f8915f8bf8e7d70b487b8926ae01603559e14179d"
    )
