"""AlpacaFarm's published annotator prompts: used unchanged, replies parsed by their patterns."""

from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.annotators.annotator_pool import PUBLISHED, PublishedAnnotator, load_pool
from lpfloop.critics.annotators.comparison import END_OF_PROMPT, Comparison, ask

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


def test_published_texts_are_filled():
    for given in [None, "Crayons are on sale."]:
        for annotator in ORIGINAL.annotators:
            asked = pairs(annotator.batch_size, **({"input": given} if given else {}))
            shown = "".join(m.content for m in ask(annotator, asked).messages)
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


def test_a_reply_is_read_by_the_published_pattern(subtests):
    for name, reply, read in [
        ("strong_4", "Output (a)", "first"),
        ("strong_4", "I prefer Output (a)", None),  # Its pattern begins a line.
        ("medium_3", "Output (a), not Output (b)", None),  # Two verdicts on one pair.
        ("medium_2", '{\n"Output (a) is better than Output (b)": false\n}', "second"),
        ("weak_2", "(b)\nExplanation: it is (a) colour.", "second"),
        ("weak_2", "neither", None),
    ]:
        with subtests.test(name=name):
            (reading,) = ask(named(name), [PAIR]).read(reply, "stop")
            assert reading.value.preferred == read
            assert (reading.status == "scored") is (read is not None)


def test_too_few_verdicts_give_null():
    readings = ask(named("weak_1"), pairs(4)).read("(a)\n(b)\n(a)", "stop")
    assert {r.status for r in readings} == {"wrong_numbers"}
    assert len(readings) == 4


def test_custom_pool_errors(tmp_path: Path, subtests):
    for changed, told in [
        ("    batch_size: 3\n", "chatml_b5_with_inputs.txt has {instruction} 5 times"),
        ("    verdicts: {first: {matches: '(', written: a}}\n", "'(' is not a regular expression"),
        ("    verdicts: {first: {matches: x, written: a}}\n", "'x' must match once in 'a'"),
    ]:
        with subtests.test(changed=changed):
            file = tmp_path / "mine.yaml"
            own = f"extends: alpacafarm-original\nannotators:\n  - name: strong_3\n{changed}"
            file.write_text(own, encoding="utf-8")
            with pytest.raises(ConfigError) as refused:
                load_pool(str(file))
            assert told in str(refused.value)
