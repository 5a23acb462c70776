"""People's labels instead of annotators': valid labels, their decisions, refusals."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.stages.people_labels import label_prompts, labels_of
from lpfloop.loop.stages.prefer import majority
from lpfloop.stores.records import Preference, Prompt

PANDALM = f"{Path(__file__).parents[4]}/examples/imports/pandalm.py:rows"


def write(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def config(source: object) -> RunConfig:
    named = f"annotation.source=[{source}]"
    return load_config("own", "dpo", ("policy.model=somewhere", named), {})


def votes(*told: tuple[str, str, str, str | None]) -> pl.DataFrame:
    names = ("first_id", "second_id", "annotator", "preferred")
    rows = pl.DataFrame(told, schema=dict.fromkeys(names, pl.String), orient="row")
    return rows.with_columns(
        preference_id=pl.format("v{}", pl.int_range(pl.len())),
        prompt_id=pl.lit("p"),
        first_score=pl.lit(None, pl.Float64),
        second_score=pl.lit(None, pl.Float64),
    )


def decided(*told: tuple[str, str, str, str | None]) -> dict[tuple[str, str], str | None]:
    rows = majority(votes(*told)).select("first_id", "second_id", "preferred").iter_rows()
    return {(one, other): preferred for one, other, preferred in rows}


def test_majority_decides() -> None:
    assert decided(
        ("a", "b", "human:1", "first"),
        ("b", "a", "human:2", "second"),
        ("a", "b", "human:3", "second"),
        ("b", "c", "human:1", "tie"),
        ("b", "c", "human:2", "second"),
        ("c", "d", "human:1", "first"),
        ("c", "d", "human:2", "second"),
        ("d", "e", "human:1", None),
    ) == {("a", "b"): "first", ("b", "c"): "second", ("c", "d"): "tie", ("d", "e"): None}


def test_people_decide_before_models() -> None:
    assert decided(
        ("a", "b", "gpt", "first"),
        ("a", "b", "other", "first"),
        ("a", "b", "human:1", "first"),
        ("a", "b", "human:1", "second"),
        ("b", "c", "gpt", "first"),
    ) == {("a", "b"): "second", ("b", "c"): "first"}


def test_unusable_labels_are_refused(tmp_path: Path) -> None:
    for given, said in [
        ([{"prompt": "a?"}], "holds rows of prompts"),
        ([{"prompt": "a?", "chosen": "x", "rejected": 3}], "line 1: 'rejected' must be a text"),
    ]:
        with pytest.raises(InputError, match=said):
            label_prompts(config(write(tmp_path / "rows.jsonl", *given)), tmp_path)


def test_imported_run_gives_its_votes(tmp_path: Path) -> None:
    asked = {"instruction": "a?", "input": "", "cmp_key": "m_n", "gpt_result": 1}
    told = {"response1": "one", "response2": "two", "annotator1": 2, "annotator2": 2}
    file = write(
        tmp_path / "votes.jsonl",
        {**asked, **told},
        {**asked, "response1": "one", "response2": "six", "annotator1": 1, "annotator2": 2},
    )
    import_files(Import(lake=tmp_path, name="people", files=(file,), form=PANDALM))
    labels = labels_of(config("run:people"), tmp_path)
    assert labels is not None
    made = list(labels.read(3))
    said = [[v.annotator for v in rows if isinstance(v, Preference)] for rows in made]
    assert all({"human:annotator1", "human:annotator2", "gpt"} == {*names} for names in said)
    assert {row.iteration for rows in made for row in rows if not isinstance(row, Prompt)} == {3}
    assert label_prompts(config("run:people"), tmp_path)[0].messages[0].content == "a?"
