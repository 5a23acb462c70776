"""Published splits: a column gives the split of a prompt, and lpfloop cuts none by size."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lpfloop.configs.schema import PartsConfig, PromptsConfig
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.data.splits import PARTS, part_of
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


def test_column_names_the_part(tmp_path: Path) -> None:
    prompts = loaded(written(tmp_path, PUBLISHED, "split_of_farm"), "split_of_farm")
    said = [prompt.messages[0].content for prompt in prompts]
    assert [prompt.split for prompt in prompts[-2:]] == ["dev", "held-out"]
    train = [prompt for prompt in prompts if prompt.split == "train"]
    sizes = PartsConfig(sft=1, preference=1, unlabeled=1)
    taken = {part: [p.messages[0].content for p in part_of(train, part, sizes)] for part in PARTS}
    assert taken == {"sft": said[:1], "preference": said[1:3], "unlabeled": said[3:4]}


def test_wrong_part_is_refused(tmp_path: Path) -> None:
    for parts, said in [
        (["sft", "train"], "line 2: 'part'"),
        (["sft", "none"], "line 2: lacks 'part'"),
    ]:
        with pytest.raises(InputError, match=said):
            loaded(written(tmp_path, parts))
