"""One id means one prompt, in every kind of file with ids."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.imports.import_files import Import, import_files

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


def clash(name: str) -> list[dict[str, object]]:
    """Return three rows; the first and the last give two prompts the same id."""
    return [{name: n, "prompt": f"What is 2 + {a}?"} for n, a in ((7, 2), (8, 3), (7, 4))]


def imported(folder: Path, form: str, *files: Path):
    return import_files(Import(lake=folder / "lake", name="x", files=files, form=form))


def test_clash_names_both_lines(subtests, tmp_path):
    path = tmp_path / "p.jsonl"
    for name, call in [
        ("id", lambda: read_prompts(path)),
        ("prompt_id", lambda: read_prompts(path)),
        ("id", lambda: imported(tmp_path, "pairs", path)),
    ]:
        with subtests.test(case=name):
            written(path, *({**row, **SIDES} for row in clash(name)))
            said = refused(path, call)
            assert "line 3: the id '7' belongs to another prompt on line 1" in said


def test_id_holds_across_files(tmp_path) -> None:
    first = written(tmp_path / "a.jsonl", {"id": 1, "prompt": "a", "prompt_id": "p"})
    second = written(
        tmp_path / "b.jsonl", {"id": 1, "prompt": "b"}, {"prompt_id": "p", "prompt": "c"}
    )
    said = refused(second, lambda: imported(tmp_path, "prompts", first, second))
    assert f"line 2: the id 'p' belongs to another prompt in {first}, line 1" in said
    third = written(tmp_path / "c.jsonl", {"id": 1, "prompt": "d"})
    assert imported(tmp_path, "prompts", first, third).rows == {"prompts": 2}


def test_same_prompt_twice_is_one(tmp_path) -> None:
    row = {"id": 7, "prompt": "What is 2 + 2?", "response": "4"}
    path = written(tmp_path / "p.jsonl", row, {**row, "response": "5"}, row, {**row, "source": "b"})
    assert len(read_prompts(path)) == 1
    assert imported(tmp_path, "candidates", path).rows == {"prompts": 1, "candidates": 2}
