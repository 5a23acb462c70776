"""The kinds of files and folders from which prompts are read, and rows with names of their own."""

import csv
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.data.files import InputError, file_digest, placed_rows
from lpfloop.loop.data.prompt_rows import RowShape
from lpfloop.loop.data.prompts import load_prompts, read_prompts

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


def test_the_same_rows_are_the_same_prompts_in_every_kind_of_file(tmp_path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, row in enumerate(ROWS):
        as_parquet([row], shards / f"train-{number:05}-of-00003.parquet")
    places = [
        as_jsonl(ROWS, tmp_path / "a.jsonl"),
        as_csv(ROWS, tmp_path / "a.csv"),
        as_csv(ROWS, tmp_path / "excel.csv", encoding="utf-8-sig"),
        as_csv(ROWS, tmp_path / "unix.csv", lineterminator="\n", quoting=csv.QUOTE_ALL),
        as_csv(ROWS, tmp_path / "a.TSV", delimiter="\t"),
        as_parquet(ROWS, tmp_path / "a.parquet"),
        saved_by_datasets(ROWS, tmp_path / "saved", num_shards=2),
        shards,
    ]
    told = [
        [(p.prompt_id, p.task, p.messages, p.reference) for p in read_prompts(f)] for f in places
    ]
    assert [len(prompts) for prompts in told] == [3] * len(places)
    assert all(prompts == told[0] for prompts in told)


def test_a_row_of_a_csv_file_stands_where_it_begins(tmp_path) -> None:
    path = as_csv(ROWS, tmp_path / "a.csv", lineterminator="\n")
    assert [place for place, _ in placed_rows(path)] == ["line 2", "line 5", "line 6"]


def test_an_empty_cell_is_absent_and_a_number_stays_a_text(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",prompt,reference,task\n0,2+2?,4,math\n\n1,Hello,,\n")
    first, second = read_prompts(path)
    assert (first.reference, first.task) == ("4", "math")
    assert (second.reference, second.task) == (None, "general")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt,reference\na,b\nc\n", "line 3: the row has 1 columns and the header 2"),
        ("prompt,reference\na, b, c\n", "line 2: the row has 3 columns and the header 2"),
        ("prompt,prompt\na,b\n", "line 1: the header names 'prompt' twice"),
        ("prompt,,x\na,b,c\n", "line 1: column 2 of the header has no name"),
        ("prompt;reference\na;b\n", "the columns are separated by ';', and those of a .csv file"),
        ("prompt\tx\na\tb\n", "the columns are separated by a tab"),
        ('prompt,x\nq,1\n"never closed,2\nq,3\n', "line 3: not a readable row of CSV: unexpected"),
        ('prompt\n"a"b\n', "line 2: not a readable row of CSV"),
        ("prompt,x\n,1\n", "line 2: no prompt: 'prompt' is empty"),
        ("prompt,x\n", "holds no prompts"),
        ("", "holds no prompts"),
    ],
)
def test_bad_csv_is_refused_with_its_line(tmp_path, text, said) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert said in refusal(path)


def test_a_csv_file_in_another_encoding_is_refused_with_its_line(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("prompt\ngut\ngrößer\n".encode("latin-1"))
    assert "line 3: not UTF-8 at byte 3" in refusal(path)


def test_a_folder_of_several_splits_asks_for_one(tmp_path) -> None:
    saved_by_datasets(ROWS, tmp_path / "d" / "train")
    saved_by_datasets(ROWS[:1], tmp_path / "d" / "test")
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    said = refusal(tmp_path / "d")
    assert f"name {tmp_path / 'd' / 'test'} or {tmp_path / 'd' / 'train'}" in said
    assert len(read_prompts(tmp_path / "d" / "train")) == 3


def test_files_of_several_splits_are_named_behind_their_folder(tmp_path) -> None:
    as_jsonl(ROWS, tmp_path / "train.jsonl")
    as_parquet(ROWS[:1], tmp_path / "test_sft-00000-of-00001.parquet")
    (tmp_path / "README.md").write_text("about")
    assert "holds several parts" in refusal(tmp_path)
    assert len(read_prompts(tmp_path / "train")) == 3
    assert len(read_prompts(tmp_path / "test_sft")) == 1
    assert f"name {tmp_path / 'test_sft'} or" in refusal(tmp_path / "validation")


def test_shards_of_no_split_are_read_together_in_their_order(tmp_path) -> None:
    as_jsonl(ROWS[:2], tmp_path / "part-1.jsonl")
    as_csv(ROWS[2:], tmp_path / "part-2.csv")
    assert [place for place, _ in placed_rows(tmp_path)] == [
        "part-1.jsonl, line 1",
        "part-1.jsonl, line 2",
        "part-2.csv, line 2",
    ]
    as_jsonl([{"prompt": ""}], tmp_path / "part-3.jsonl")
    assert "part-3.jsonl, line 1: 'prompt' is empty" in refusal(tmp_path)


def test_a_missing_shard_is_noticed(tmp_path) -> None:
    as_parquet(ROWS, tmp_path / "train-00000-of-00002.parquet")
    assert "incomplete: file 00001 of 00002 of 'train' is missing" in refusal(tmp_path)
    folder = saved_by_datasets(ROWS, tmp_path / "saved", num_shards=2)
    (folder / "data-00001-of-00002.arrow").unlink()
    assert "incomplete: data-00001-of-00002.arrow is missing" in refusal(folder)


def test_a_damaged_arrow_file_is_refused(tmp_path) -> None:
    folder = saved_by_datasets(ROWS, tmp_path / "saved")
    (folder / "data-00000-of-00001.arrow").write_bytes(b"no arrow at all")
    assert "data-00000-of-00001.arrow: not a readable Arrow file" in refusal(folder)
    (folder / "state.json").write_text("{}")
    assert "state.json: not the state of a saved data set" in refusal(folder)


def test_a_loading_script_is_never_run(tmp_path) -> None:
    (tmp_path / "gsm8k.py").write_text("raise SystemExit('was run')")
    assert "holds no data files" in refusal(tmp_path)


def test_the_digest_of_a_folder_is_that_of_its_data(tmp_path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        as_jsonl(ROWS, folder / "train.jsonl")
    (other / "README.md").write_text("about")
    assert file_digest(one) == file_digest(other) == file_digest(one / "train")
    as_jsonl(ROWS[:1], other / "train.jsonl")
    assert file_digest(one) != file_digest(other)


# rows with names of their own, and conversations that go on


def test_fields_of_other_names(tmp_path) -> None:
    rows = [{"Frage": "x?", "Lösung": "y", "question": "another", "n": "1"}]
    path = as_csv(rows, tmp_path / "a.csv")
    config = PromptsConfig(
        source=str(path), held_out_share=0, fields={"prompt": "Frage", "reference": "Lösung"}
    )
    (prompt,) = load_prompts(config, seed=0)
    assert (prompt.instruction, prompt.reference, prompt.task) == ("x?", "y", "general")
    assert "prompts.fields={prompt: ...}" in refusal(as_csv([{"Frage": "x"}], tmp_path / "b.csv"))
    said = refusal(path, shape=RowShape(fields={"reference": "Loesung"}))
    assert "line 2: no field 'Loesung' for prompts.fields.reference (the row has 'Frage'" in said


TALK = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Hi?"},
    {"from": "gpt", "value": "Hello."},
    {"from": "human", "value": ""},
]


def test_the_first_turn_of_published_conversations(tmp_path, caplog) -> None:
    rows = [
        {"id": "a", "conversations": TALK},
        {"id": "b", "conversations": [{"from": "gpt", "value": "Once"}, *TALK[1:3]]},
        {"id": "c", "conversations": []},
        {"id": "d", "conversations": TALK[2:]},
        {"id": "e", "messages": [{"role": "user", "content": "Bye?"}]},
        {"id": "f", "prompt": "plain"},
    ]
    path = as_jsonl(rows, tmp_path / "a.jsonl")
    with caplog.at_level(logging.WARNING):
        prompts = read_prompts(path, shape=RowShape(turns="first"))
    said = [[(m.role, m.content) for m in prompt.messages] for prompt in prompts]
    assert said == [
        [("system", "Be brief."), ("user", "Hi?")],
        [("user", "Hi?")],
        [("user", "Bye?")],
        [("user", "plain")],
    ]
    assert "dropped 2 conversations in which the user says nothing" in caplog.text


def test_a_conversation_that_ends_with_an_answer_names_the_option(tmp_path) -> None:
    path = as_jsonl([{"conversations": TALK[:3]}], tmp_path / "a.jsonl")
    assert "line 1: 'conversations' must end with a message of the user; prompts.turns=first" in (
        refusal(path)
    )


# the hub's cache


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Put a data set into a cache as the hub's own programs lay it out."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

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


def test_a_data_set_of_the_hubs_cache(cached, tmp_path) -> None:
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
    for place, named in (("", "main"), ("/main", "main/test")):
        with pytest.raises(InputError, match=f"several parts; name hf:openai/gsm8k/{named} or"):
            load_prompts(PromptsConfig(source=f"hf:openai/gsm8k{place}"), seed=0)


def test_the_only_folder_of_a_data_set_needs_no_name(cached) -> None:
    cached("tatsu-lab/alpaca", ("data/train-00000-of-00001-a09b74b3ef9c3b56.parquet", ROWS))
    for place in ("", "/train", "/data"):
        source = f"hf:tatsu-lab/alpaca{place}"
        assert len(load_prompts(PromptsConfig(source=source), seed=0)) == 3


def test_a_data_set_that_is_not_cached(cached) -> None:
    cached("tatsu-lab/alpaca", ("train.parquet", ROWS))
    for source in ("hf:openai/gsm8k", "hf:tatsu-lab/alpaca@other"):
        with pytest.raises(InputError) as caught:
            load_prompts(PromptsConfig(source=source), seed=0)
        assert "it holds tatsu-lab/alpaca" in str(caught.value)
        assert "--download" in str(caught.value)
