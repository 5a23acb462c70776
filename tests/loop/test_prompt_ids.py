"""One id is one prompt, through every door by which rows with ids come."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_ids import PromptIds
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.data.prompts import load_prompts, read_prompts
from lpfloop.loop.evaluation.probe_sets import read_probes, require_probes
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.stages.mix import require_mix
from lpfloop.loop.stages.supervised_set import read_supervised

CHECK = {"checks": [{"kind": "json_valid", "argument": ""}]}
SIDES = {"chosen": "yes", "rejected": "no"}


def written(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def refused(path: Path, call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{path}, line ")
    assert "give each prompt its own id" in message
    assert not (path.parent / "lake").exists()
    return message


@pytest.fixture(params=["id", "prompt_id"])
def clash(request) -> list[dict[str, object]]:
    """Three rows, of which the first and the last give two prompts one id."""
    return [
        {request.param: 7, "prompt": "What is 2 + 2?"},
        {request.param: 8, "prompt": "What is 2 + 3?"},
        {request.param: 7, "prompt": "What is 2 + 4?"},
    ]


def imported(folder: Path, form: str, *files: Path):
    return import_files(Import(lake=folder / "lake", name="x", files=files, form=form))


def test_prompts_with_one_id_are_refused_with_both_lines(tmp_path, clash) -> None:
    path = written(tmp_path / "p.jsonl", *clash)
    said = refused(path, lambda: read_prompts(path))
    assert "line 3: the id '7' is that of another prompt on line 1" in said


@pytest.mark.parametrize(
    ("form", "beside"),
    [("prompts", {}), ("candidates", {"response": "4"}), ("pairs", SIDES)],
)
def test_an_import_refuses_them(tmp_path, clash, form, beside) -> None:
    path = written(tmp_path / "p.jsonl", *({**row, **beside} for row in clash))
    said = refused(path, lambda: imported(tmp_path, form, path))
    assert "line 3: the id '7' is that of another prompt on line 1" in said


def test_probes_and_mixed_in_pairs_refuse_them(tmp_path, clash) -> None:
    probes = written(tmp_path / "p.jsonl", *({**row, **CHECK, "probe": "sums"} for row in clash))
    assert "'7' is that of another prompt on line 1" in refused(probes, lambda: read_probes(probes))
    pairs = written(tmp_path / "m.jsonl", *({**row, **SIDES} for row in clash))
    said = refused(pairs, lambda: require_mix([pairs], ()))
    assert "'7' is that of another prompt on line 1" in said


def test_a_prompt_id_holds_across_files_but_numbered_rows_do_not_clash(tmp_path) -> None:
    first = written(tmp_path / "a.jsonl", {"id": 1, "prompt": "a", "prompt_id": "p"})
    second = written(
        tmp_path / "b.jsonl", {"id": 1, "prompt": "b"}, {"prompt_id": "p", "prompt": "c"}
    )
    said = refused(second, lambda: imported(tmp_path, "prompts", first, second))
    assert f"line 2: the id 'p' is that of another prompt in {first}, line 1" in said
    third = written(tmp_path / "c.jsonl", {"id": 1, "prompt": "d"})
    assert imported(tmp_path, "prompts", first, third).rows == {"prompts": 2}


def test_held_out_prompts_may_not_take_ids_of_others(tmp_path) -> None:
    train = written(tmp_path / "a.jsonl", {"prompt_id": "p", "prompt": "a"})
    other = written(tmp_path / "b.jsonl", {"prompt": "z"}, {"prompt_id": "p", "prompt": "b"})
    config = PromptsConfig(source=str(train), held_out=str(other))
    said = refused(other, lambda: load_prompts(config, seed=0))
    assert f"line 2: the id 'p' is that of another prompt in {train}, line 1" in said


def test_what_comes_beside_a_run_may_not_take_the_ids_of_its_prompts(tmp_path) -> None:
    (own,) = read_prompts(written(tmp_path / "own.jsonl", {"prompt_id": "p", "prompt": "a"}))
    path = tmp_path / "b.jsonl"

    def said(call: Callable[[], object], *rows: dict[str, object]) -> None:
        written(path, {"prompt": "z", **rows[0]}, *({"prompt_id": "p", **row} for row in rows[1:]))
        assert "line 2: the id 'p' is that of another prompt of the run" in refused(path, call)

    probe, answered = {"probe": "x", **CHECK}, {"output": "b"}
    said(lambda: require_probes(str(path), [own]), probe, {"prompt": "b", **probe})
    said(lambda: require_mix([path], [own]), SIDES, {"prompt": "b", **SIDES})
    config = PromptsConfig(source=str(path))
    said(lambda: read_supervised(config, str(path), [own]), answered, {"prompt": "b", **answered})
    said(lambda: read_prompts(path, split="held-out", run=[own]), {}, {"prompt": "b"})
    written(path, {"prompt_id": "p", "prompt": "a", **SIDES})
    require_mix([path], [own])


def test_the_same_prompt_twice_is_one_prompt(tmp_path) -> None:
    row = {"id": 7, "prompt": "What is 2 + 2?", "response": "4"}
    path = written(tmp_path / "p.jsonl", row, {**row, "response": "5"}, row, {**row, "source": "b"})
    assert len(read_prompts(path)) == 1
    assert imported(tmp_path, "candidates", path).rows == {"prompts": 1, "candidates": 2}


def test_what_a_row_gave_that_is_left_out_is_forgotten(tmp_path: Path) -> None:
    ids, path = PromptIds(), tmp_path / "a.jsonl"
    one, two = (
        to_prompt(Row({"prompt": text}), task=None, split="train", source="s") for text in "ab"
    )
    assert ids.is_new(Row({"id": "1"}), one, path, "line 1")
    ids.forget(path, "line 1")
    assert ids.is_new(Row({"id": "1"}), two, path, "line 2")
    assert ids.is_new(Row(), one, path, "line 3")
    ids.forget(path, "line 2")
    assert not ids.is_new(Row(), one, path, "line 4")
