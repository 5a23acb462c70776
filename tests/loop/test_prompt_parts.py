"""Published splits: a column says which part a prompt serves, and nothing is cut by size."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lpfloop.configs.schema import PartsConfig, PromptsConfig
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.data.splits import PARTS, part_of
from lpfloop.loop.run.handles import content_key
from lpfloop.stores.records import Prompt

PUBLISHED = ("sft", "preference", "preference", "unlabeled", "val", "eval")


def written(folder: Path, parts: Sequence[object], column: str = "part") -> Path:
    path = folder / "prompts.jsonl"
    rows = [{"instruction": f"Count to {n}.", column: part} for n, part in enumerate(parts)]
    told = [{k: v for k, v in row.items() if v != "none"} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return path


def loaded(path: Path, column: str | None = None) -> list[Prompt]:
    fields = {} if column is None else {"fields": {"part": column}}
    return load_prompts(PromptsConfig.model_validate({"source": str(path), **fields}), seed=0)


@pytest.mark.parametrize("column", ["part", "split_of_farm"])
def test_a_column_says_which_part_each_prompt_serves(tmp_path: Path, column: str) -> None:
    named = None if column == "part" else column
    prompts = loaded(written(tmp_path, PUBLISHED, column), named)
    said = [prompt.messages[0].content for prompt in prompts]
    assert [prompt.split for prompt in prompts[-2:]] == ["dev", "held-out"]
    train = [prompt for prompt in prompts if prompt.split == "train"]
    sizes = PartsConfig(sft=1, preference=1, unlabeled=1)
    taken = {part: [p.messages[0].content for p in part_of(train, part, sizes)] for part in PARTS}
    assert taken == {"sft": said[:1], "preference": said[1:3], "unlabeled": said[3:4]}


def test_no_answer_depends_on_the_part(tmp_path: Path) -> None:
    one, other = (loaded(written(tmp_path, [part, part]))[:1] for part in ("sft", "none"))
    assert (one[0].part, other[0].part) == ("sft", None)
    assert content_key(one) == content_key(other)
    assert one[0].prompt_id == other[0].prompt_id


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["sft", "train"], "line 2: 'part' must be one of sft, preference, unlabeled, val, eval"),
        (["sft", ["sft"]], "line 2: 'part' must be one of sft, preference, unlabeled, val, eval"),
        (["sft", "none"], "line 2: has no 'part', and line 1 has one; all rows to train on name"),
    ],
)
def test_a_wrong_part_is_refused_with_its_line(
    tmp_path: Path, parts: Sequence[object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        loaded(written(tmp_path, parts))


def test_a_part_that_is_not_trained_on_cannot_be_in_another_split(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a?", "part": "val", "split": "held-out"}\n')
    with pytest.raises(InputError, match="line 1: 'part' is val, which is the split dev, but"):
        loaded(path)
