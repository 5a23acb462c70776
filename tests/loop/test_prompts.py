import json
import logging
from hashlib import sha256

import pytest

from lpfloop.configs.schema import ConfigError, PromptsConfig, RunConfig
from lpfloop.loop.daemon.exams import deciding
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_rows import content_id
from lpfloop.loop.data.prompts import load_prompts, read_prompts, tiny_prompts
from lpfloop.loop.data.splits import split_prompts
from lpfloop.loop.data.text_lines import LONGEST_LINE
from lpfloop.stores.records import Check, Message, Split


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


def test_a_native_row_keeps_all_it_says(file) -> None:
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


@pytest.mark.parametrize(
    ("row", "task", "text", "reference"),
    [
        ({"prompt": "x"}, "general", "x", None),
        ({"prompt": [{"role": "user", "content": "x"}]}, "general", "x", None),
        ({"question": "x", "answer": "#### 3"}, "math", "x", "#### 3"),
        ({"question": "x"}, "general", "x", None),
        ({"problem": "x", "solution": "y", "level": 3}, "math", "x", "y"),
        ({"instruction": "x", "input": "", "output": "y"}, "general", "x", None),
        ({"instruction": "x", "input": "y"}, "general", "x\n\ny", None),
        ({"prompt": "x", "reference": "r", "task": "code"}, "code", "x", "r"),
        ({"question": "x", "answer": "a", "reference": "r"}, "math", "x", "r"),
    ],
)
def test_the_known_forms(file, row, task, text, reference) -> None:
    (prompt,) = read_prompts(file(row))
    assert (prompt.task, prompt.instruction, prompt.reference) == (task, text, reference)


def test_a_given_task_is_for_rows_that_name_none(file) -> None:
    path = file({"question": "x", "answer": "y"}, {"prompt": "z", "task": "own"})
    assert [prompt.task for prompt in read_prompts(path, task="trivia")] == ["trivia", "own"]


def test_an_id_depends_on_the_content_alone(file) -> None:
    one = read_prompts(file({"prompt": "x"}, name="a.jsonl"))[0]
    two = read_prompts(file({"prompt": "x", "note": 1}, name="b.jsonl"), split="held-out")[0]
    assert one.prompt_id == two.prompt_id
    assert one.prompt_id == content_id(one.messages, None, (), "general")
    assert read_prompts(file({"prompt": "x", "reference": "r"}))[0].prompt_id != one.prompt_id
    assert read_prompts(file({"prompt": "x", "prompt_id": 7}))[0].prompt_id == "7"


def test_byte_order_mark_blank_lines_and_carriage_returns(file) -> None:
    path = file(b'\xef\xbb\xbf{"prompt": "x"}\r', b"  \r", b"", b'{"prompt": "y"}', b"")
    assert [prompt.instruction for prompt in read_prompts(path)] == ["x", "y"]


def test_line_separators_inside_a_text_end_no_line(file) -> None:
    text = "a\u2028b\u0085c"
    path = file(json.dumps({"prompt": text}, ensure_ascii=False).encode())
    assert read_prompts(path)[0].instruction == text


def test_identical_rows_collapse_and_are_counted(file, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        prompts = read_prompts(file({"prompt": "x"}, {"prompt": "x"}, {"prompt": "y"}))
    assert [prompt.instruction for prompt in prompts] == ["x", "y"]
    assert "dropped 1 rows that repeat another one" in caplog.text


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no prompts"),
        ([b"", b"  "], "holds no prompts"),
        ([{"prompt": "x"}, b"{nonsense"], "line 2: not valid JSON: Expecting property name"),
        ([b"[1]"], "line 1: expected a JSON object"),
        ([b"3"], "line 1: expected a JSON object"),
        ([b"[" * 200_000], "line 1: not readable as JSON"),
        ([b'{"prompt": "x", "prompt": "y"}'], "line 1: the field 'prompt' appears twice"),
        ([b'{"prompt": ' + b"9" * 5000 + b"}"], "line 1: not readable as JSON"),
        ([{"text": "x"}], "line 1: no prompt; name its field one of messages, conversations"),
        ([{}], "the row has none"),
        ([{"Body": "b", "Title": "q"}], "the row has 'Body', 'Title'"),
        ([{"prompt": "x", "question": "y"}], "both 'prompt' and 'question' hold a prompt"),
        ([{"prompt": ""}], "'prompt' is empty"),
        ([{"prompt": " \n"}], "'prompt' is empty"),
        ([{"prompt": 3}], "'prompt' must be a text, but is a number"),
        ([{"prompt": None}], "no prompt"),
        ([{"prompt": "a\0b"}], "NUL"),
        ([b'{"prompt": "a\\ud800b"}'], "lone surrogate"),
        ([b'{"prompt": "x"}', b'{"prompt": "\xff"}'], "line 2: not UTF-8 at byte 13 of the line"),
        (['{"prompt": "x"}'.encode("utf-16")], "line 1: not UTF-8 at byte 1"),
        ([{"messages": "x"}], "'messages' must be a list of messages, but is a text"),
        ([{"messages": []}], "'messages' holds no message"),
        ([{"messages": ["x"]}], "'messages[1]' must be an object"),
        ([{"messages": [{"role": "user"}]}], "'messages[1].content' must be a text"),
        ([{"messages": [{"role": "boss", "content": "x"}]}], "the role must be one of system"),
        ([{"messages": [{"role": "assistant", "content": "x"}]}], "must end with a message"),
        ([{"prompt": "x", "split": "test"}], "'split' must be train, dev or held-out"),
        ([{"prompt": "x", "reference": 3}], "'reference' must be a text, but is a number"),
        ([{"prompt": "x", "task": True}], "'task' must be a text, but is true or false"),
        ([{"prompt": "x", "prompt_id": {}}], "'prompt_id' must be a text, but is an object"),
        ([{"prompt": "x", "checks": {}}], "'checks' must be a list, but is an object"),
        ([{"prompt": "x", "checks": [1]}], "an object with kind and argument"),
        ([{"prompt": "x", "checks": [{"argument": "1"}]}], "'checks.kind' must be a text"),
        ([{"prompt": "x", "checks": [{"kind": "equals", "argument": 1}]}], "'checks.argument'"),
        (
            [{"prompt": "x", "prompt_id": "1"}, {"prompt": "y"}, {"prompt": "z", "prompt_id": "1"}],
            "line 3: the id '1' is that of another prompt on line 1",
        ),
        (
            [{"prompt": "x", "split": "train"}, {"prompt": "x", "split": "held-out"}],
            "is that of another prompt on line 1",
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(file, rows, said) -> None:
    assert said in refusal(file(*rows))


def test_an_endless_line_is_refused_unread(file) -> None:
    path = file(b'{"prompt": "' + b"x" * LONGEST_LINE + b'"}')
    assert "line 1: longer than" in refusal(path)


def test_files_that_can_not_be_read(tmp_path) -> None:
    assert "No such file" in refusal(tmp_path / "none.jsonl")
    assert "holds no data files" in refusal(tmp_path)


# splits


def test_the_split_is_stable_and_near_the_share(file) -> None:
    prompts = read_prompts(file(*({"prompt": f"p{n}"} for n in range(2000))))
    shares: dict[Split, float] = {"held-out": 0.1}
    split = split_prompts(prompts, shares, seed=1)
    held_out = {prompt.prompt_id for prompt in split if prompt.split == "held-out"}
    assert 150 < len(held_out) < 250
    fewer = split_prompts(prompts[:1000], shares, seed=1)
    kept = {prompt.prompt_id for prompt in fewer if prompt.split == "held-out"}
    assert kept == held_out & {prompt.prompt_id for prompt in prompts[:1000]}
    assert split_prompts(prompts, shares, seed=2) != split


def test_equal_texts_stay_on_one_side(file) -> None:
    rows = [{"prompt": f"p{n % 50}", "prompt_id": str(n)} for n in range(200)]
    sides = dict[str, set[str]]()
    for prompt in split_prompts(read_prompts(file(*rows)), {"held-out": 0.3}, seed=0):
        sides.setdefault(prompt.instruction, set()).add(prompt.split)
    assert all(len(found) == 1 for found in sides.values())


@pytest.mark.parametrize("size", [2, 3, 10])
def test_a_small_file_gets_both_sides(file, size) -> None:
    prompts = read_prompts(file(*({"prompt": f"p{n}"} for n in range(size))))
    for share in (0.01, 0.5):
        split = split_prompts(prompts, {"held-out": share}, seed=0)
        assert {p.split for p in split} == {"train", "held-out"}


def test_a_file_with_held_out_prompts_is_left_as_it_is(file) -> None:
    prompts = read_prompts(file({"prompt": "x"}, {"prompt": "y", "split": "held-out"}))
    assert split_prompts(prompts, {"held-out": 0.5}, seed=0) == prompts
    assert split_prompts(prompts[:1], {}, seed=0) == prompts[:1]


# what a run gets


def test_held_out_prompts_of_a_file_of_their_own(file) -> None:
    train = file({"prompt": "x"}, name="a.jsonl")
    other = file({"prompt": "y"}, name="b.jsonl")
    config = PromptsConfig(source=str(train), held_out=str(other))
    assert [p.split for p in load_prompts(config, seed=0)] == ["train", "held-out"]
    with pytest.raises(InputError, match="is also in"):
        load_prompts(PromptsConfig(source=str(train), held_out=str(train)), seed=0)


def test_something_must_be_left_to_train_on(file) -> None:
    path = file({"prompt": "x", "split": "held-out"})
    with pytest.raises(InputError, match="no prompts to train on"):
        load_prompts(PromptsConfig(source=str(path)), seed=0)


def test_the_tiny_worlds_prompts() -> None:
    prompts = tiny_prompts()
    assert prompts == load_prompts(PromptsConfig(source="tiny"), seed=5)
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    assert {prompt.task for prompt in prompts} == {"math", "facts", "general"}
    assert sum(prompt.split == "train" for prompt in prompts) >= 3000
    assert sum(prompt.split == "held-out" for prompt in prompts) >= 600
    ids = [[prompt.prompt_id, prompt.split] for prompt in prompts if prompt.split != "dev"]
    assert (
        sha256(json.dumps(ids).encode()).hexdigest()
        == "21e71835234c2317e4fa300f8915f8bf8e7d70b487b8926ae01603559e14179d"
    )


def test_tiny_prompts_tell_their_family_and_what_shares_their_outcome() -> None:
    prompts = {prompt.instruction: prompt for prompt in tiny_prompts()}
    person = prompts["Describe Hugo Ivers."]
    assert (person.family, person.cluster) == ("judge", "Hugo Ivers")
    assert prompts["Who was Hugo Ivers?"].cluster == "Hugo Ivers"
    story = prompts["There are 3 boxes of 7 coins. Ben takes 4. How many coins stay?"]
    assert (story.family, story.cluster) == ("boxes", "boxes")
    assert prompts["Write drum 7 times."].family == "repeat"


def test_without_a_dev_share_the_tiny_world_has_no_dev_prompts() -> None:
    earlier = load_prompts(PromptsConfig(source="tiny", dev_share=0), seed=0)
    assert earlier == [prompt for prompt in tiny_prompts() if prompt.split != "dev"]


def test_those_that_decide_are_dev_prompts_in_an_order_of_the_seed() -> None:
    config = RunConfig(prompts=PromptsConfig(source="tiny", deciding=100))
    chosen = deciding(config, tiny_prompts())
    assert len(chosen) == 100
    assert {prompt.split for prompt in chosen} == {"dev"}
    assert chosen == deciding(config, tiny_prompts()[::-1])
    every = config.model_copy(update={"prompts": PromptsConfig(source="tiny", deciding=None)})
    assert len(deciding(every, tiny_prompts())) == 504
    assert deciding(every, tiny_prompts())[:100] == chosen


# published files


def test_gsm8k_as_published(shared_data) -> None:
    prompts = read_prompts(shared_data / "gsm8k_train_first4000.jsonl")
    assert len(prompts) == 4000
    assert {prompt.task for prompt in prompts} == {"math"}
    assert all(prompt.reference and "####" in prompt.reference for prompt in prompts)


def test_math_as_published(shared_data) -> None:
    prompts = read_prompts(shared_data / "math500.jsonl")
    assert {prompt.task for prompt in prompts} == {"math"}


@pytest.mark.parametrize(
    "name",
    [
        "ifeval_gpt4.jsonl",
        "justeval_multi_aspect.jsonl",
        "svamp.jsonl",
        "truthfulqa.jsonl",
        "ultrafeedback_binarized_300.jsonl",
    ],
)
def test_published_prompts_are_read(shared_data, name) -> None:
    assert read_prompts(shared_data / name)


def test_an_empty_instruction_in_a_published_file_is_found(shared_data) -> None:
    assert "line 225: 'instruction' is empty" in refusal(shared_data / "pandalm.jsonl")


@pytest.mark.parametrize("name", ["mtbench_question.jsonl", "factscore_InstructGPT.jsonl"])
def test_published_files_of_other_forms_are_refused_by_line_1(shared_data, name) -> None:
    assert "line 1: " in refusal(shared_data / name)


@pytest.mark.parametrize("name", ["held_out", "dev"])
def test_files_beside_the_tiny_world_are_refused(name):
    config = PromptsConfig.model_validate({"source": "tiny", name: "own.jsonl"})
    with pytest.raises(ConfigError, match=rf"prompts\.{name} would change nothing: the tiny world"):
        load_prompts(config, seed=0)
