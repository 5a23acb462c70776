"""Kinds of files and folders with prompts, and rows with the user's field names."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_rows import RowShape
from lpfloop.loop.data.prompts import load_prompts, read_prompts
from lpfloop.stores import hub_cache

ROWS = [
    {"question": 'Tom says: "2, 3".\nHow many?', "answer": "2 numbers\n#### 2"},
    {"question": "1 + 1 = ?", "answer": "#### 2"},
    {"question": "Wie groß ist π, grob?", "answer": "#### 3"},
]


def as_jsonl(rows, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_csv(rows, path, **options):
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        writer = csv.DictWriter(file, list(rows[0]), **options)
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_parquet(rows, path):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def saved_by_datasets(rows, folder, **options):
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    Dataset.from_list(rows).save_to_disk(folder, **options)
    return folder


def refusal(path, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_prompts(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_same_rows_of_every_kind(tmp_path) -> None:
    places = [
        as_jsonl(ROWS, tmp_path / "a.jsonl"),
        as_csv(ROWS, tmp_path / "a.csv"),
        as_csv(ROWS, tmp_path / "excel.csv", encoding="utf-8-sig"),
        as_csv(ROWS, tmp_path / "a.TSV", delimiter="\t"),
        as_parquet(ROWS, tmp_path / "a.parquet"),
        saved_by_datasets(ROWS, tmp_path / "saved", num_shards=2),
    ]
    told = [
        [(p.prompt_id, p.task, p.messages, p.reference) for p in read_prompts(f)] for f in places
    ]
    assert [len(prompts) for prompts in told] == [3] * len(places)
    assert all(prompts == told[0] for prompts in told)


def test_bad_csv_refused(subtests, tmp_path):
    for text, said in [
        ("prompt,reference\na,b\nc\n", "line 3: the row has 1 columns and the header 2"),
        ("prompt,prompt\na,b\n", "line 1: the header names 'prompt' twice"),
        ("prompt;reference\na;b\n", "the columns are separated by ';', and a .csv file needs"),
        ('prompt,x\nq,1\n"never closed,2\nq,3\n', "line 3: not a readable row of CSV: unexpected"),
        ("prompt,x\n,1\n", "line 2: no prompt: 'prompt' is empty"),
        ("", "holds no prompts"),
    ]:
        with subtests.test(case=text):
            path = tmp_path / "a.csv"
            path.write_text(text)
            assert said in refusal(path)


def test_other_field_names(tmp_path) -> None:
    rows = [{"Frage": "x?", "Lösung": "y", "question": "another", "n": "1"}]
    path = as_csv(rows, tmp_path / "a.csv")
    config = PromptsConfig(
        source=str(path), held_out_share=0, fields={"prompt": "Frage", "reference": "Lösung"}
    )
    (prompt,) = load_prompts(config, seed=0)
    assert (prompt.instruction, prompt.reference, prompt.task) == ("x?", "y", "general")
    said = refusal(path, shape=RowShape(fields={"reference": "Loesung"}))
    assert "line 2: no field 'Loesung' for prompts.fields.reference (the row has 'Frage'" in said


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Put a data set into a cache in the hub's layout."""
    monkeypatch.setattr(hub_cache, "cache_folder", lambda: tmp_path / "hub")

    def put(name: str, *files):
        folder = tmp_path / "hub" / f"datasets--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(COMMIT)
        for number, (place, rows) in enumerate(files):
            blob = folder / "blobs" / f"{number:064}"
            blob.parent.mkdir(exist_ok=True)
            as_parquet(rows, blob)
            link = folder / "snapshots" / COMMIT / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)

    return put


def test_cached_data_set(cached, tmp_path) -> None:
    cached(
        "openai/gsm8k",
        ("main/train-00000-of-00001.parquet", ROWS),
        ("main/test-00000-of-00001.parquet", ROWS[:1]),
        ("socratic/train-00000-of-00001.parquet", ROWS[:2]),
    )
    config = PromptsConfig(source="hf:openai/gsm8k/main/train", held_out_share=0)
    prompts = load_prompts(config, seed=0)
    lines = read_prompts(as_jsonl(ROWS, tmp_path / "a.jsonl"))
    assert [p.prompt_id for p in prompts] == [p.prompt_id for p in lines]
    assert {p.source for p in prompts} == {"openai/gsm8k"}
    at = PromptsConfig(source=f"hf:openai/gsm8k@{COMMIT}/main/test", held_out_share=0)
    assert len(load_prompts(at, seed=0)) == 1
    with pytest.raises(InputError, match="several parts; name hf:openai/gsm8k/main or"):
        load_prompts(PromptsConfig(source="hf:openai/gsm8k"), seed=0)
    with pytest.raises(InputError, match="it holds openai/gsm8k"):
        load_prompts(PromptsConfig(source="hf:openai/other"), seed=0)
