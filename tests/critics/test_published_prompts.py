"""The published prompts of AlpacaFarm's annotators: shown unchanged, read by their own patterns."""

from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.annotators.annotator_pool import PUBLISHED, PublishedAnnotator, load_pool
from lpfloop.critics.annotators.ask_annotator import ask_annotator
from lpfloop.critics.annotators.comparison import Comparison
from lpfloop.critics.annotators.published_prompts import END_OF_PROMPT, PADDING

ORIGINAL = load_pool("alpacafarm-original")
PAIR = Comparison(prompt="Name a colour.", first="Red {input}.", second="Four.", key="k")
MARKS = (
    "<|im_start|>system\n",
    "<|im_start|>user\n",
    "<|im_start|>assistant\n",
    "<|im_end|>",
    END_OF_PROMPT,
)


def named(name: str) -> PublishedAnnotator:
    (found,) = (a for a in ORIGINAL.annotators if a.name == name)
    assert isinstance(found, PublishedAnnotator)
    return found


def pairs(count: int, **changes: str) -> list[Comparison]:
    return [
        replace(PAIR, prompt=f"Name the colour {n}.", key=f"k{n}", **changes) for n in range(count)
    ]


def test_the_pool_has_the_roles_and_batches_of_the_paper():
    ours = load_pool("alpacafarm")
    assert [(a.name, a.role, a.batch_size) for a in ORIGINAL.annotators] == [
        (a.name, a.role, a.batch_size) for a in ours.annotators
    ]
    assert len({a.digest for a in ORIGINAL.annotators}) == 13


@pytest.mark.parametrize("annotator", ORIGINAL.annotators, ids=lambda a: a.name)
@pytest.mark.parametrize("given", [None, "Crayons are on sale."])
def test_a_prompt_is_the_published_text_with_its_places_filled(annotator, given):
    asked = pairs(annotator.batch_size, **({"input": given} if given else {}))
    shown = "".join(m.content for m in ask_annotator(annotator, asked).messages)
    form = "with_inputs" if given else "without_inputs"
    file = PUBLISHED / f"{annotator.prompts}_{form}.txt"
    expected = file.read_text(encoding="utf-8")
    for mark in MARKS:
        expected = expected.replace(mark, "")
    for pair in asked:
        for place, text in (
            ("{instruction}", pair.prompt),
            ("{input}", pair.input or ""),
            ("{output_1}", pair.first.replace("{", "\0")),
            ("{output_2}", pair.second),
        ):
            expected = expected.replace(place, text, 1)
    assert "".join(shown.split()) == "".join(expected.replace("\0", "{").split())


def test_turns_are_messages_and_a_text_is_what_the_user_says():
    roles = [m.role for m in ask_annotator(named("strong_1"), [PAIR]).messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [m.role for m in ask_annotator(named("weak_1"), [PAIR]).messages] == ["user"]


def test_a_prompt_that_is_not_full_is_filled_up():
    question = ask_annotator(named("strong_3"), pairs(2))
    assert question.messages[-1].content.count(PADDING.prompt) == 3
    reply = "\n".join(["Output (a)", "Output (b)", *["Output (a)"] * 3])
    assert [r.value.preferred for r in question.read(reply, "stop")] == ["first", "second"]


def test_verdicts_are_turned_back_where_outputs_were_shown_the_other_way_round():
    question = ask_annotator(named("medium_1"), [replace(PAIR, order="swapped")])
    shown = question.messages[-1].content
    assert shown.index("Four.") < shown.index("Red {input}.")
    assert [r.value.preferred for r in question.read("Output (a)", "stop")] == ["second"]


@pytest.mark.parametrize(
    ("name", "reply", "read"),
    [
        ("strong_4", "Output (a)", "first"),
        ("strong_4", "I prefer Output (a)", None),  # Its pattern begins a line.
        ("medium_3", "I prefer Output (a).", "first"),
        ("medium_3", "Output (a), not Output (b)", None),  # Two verdicts on one pair.
        ("medium_2", '{\n"Output (a) is better than Output (b)": false\n}', "second"),
        ("weak_2", "(b)\nExplanation: it is (a) colour.", "second"),
        ("weak_4", " (b)", "second"),
        ("weak_2", "neither", None),
    ],
)
def test_a_reply_is_read_by_the_published_pattern(name, reply, read):
    (reading,) = ask_annotator(named(name), [PAIR]).read(reply, "stop")
    assert reading.value.preferred == read
    assert (reading.status == "scored") is (read is not None)


def test_a_reply_with_fewer_verdicts_than_pairs_has_none():
    readings = ask_annotator(named("weak_1"), pairs(4)).read("(a)\n(b)\n(a)", "stop")
    assert {r.status for r in readings} == {"wrong_numbers"}
    assert len(readings) == 4


@pytest.mark.parametrize("annotator", ORIGINAL.annotators, ids=lambda a: a.name)
def test_the_reply_that_a_plan_takes_for_an_answer_is_read(annotator):
    question = ask_annotator(annotator, pairs(annotator.batch_size))
    read = question.read(question.example(seed=3), "stop")
    assert [reading.status for reading in read] == ["scored"] * annotator.batch_size


def test_pairs_with_an_input_and_pairs_without_do_not_share_a_prompt():
    with pytest.raises(ValueError, match="with an input, or for pairs without"):
        ask_annotator(named("strong_1"), [PAIR, replace(PAIR, key="other", input="x")])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            "    batch_size: 3\n",
            "batch_size is 3, and alpacafarm/chatml_b5_with_inputs.txt has {instruction} 5 times",
        ),
        ("    prompts: alpacafarm/none\n", "none_with_inputs.txt: the template cannot be read"),
        ("    verdicts: {first: {matches: '(', written: a}}\n", "'(' is no regular expression"),
        (
            "    verdicts: {first: {matches: x, written: a}}\n",
            "'x' must match once in 'a', not 0 times",
        ),
    ],
)
def test_a_pool_of_ones_own_says_what_is_wrong(tmp_path: Path, changed: str, told: str):
    file = tmp_path / "mine.yaml"
    own = f"extends: alpacafarm-original\nannotators:\n  - name: strong_3\n{changed}"
    file.write_text(own, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_pool(str(file))
    assert told in str(refused.value)
