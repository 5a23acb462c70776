"""lpfloop imports all supported fields of published data sets, or refuses them in a sentence."""

import json

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompt_rows import RowShape
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.imports.import_files import Import, detect_format, import_files
from lpfloop.loop.lake.query.runs import open_run


@pytest.fixture
def file(tmp_path):
    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Import files and return the tables of the run."""

    def tables(*files, name="x", **options):
        import_files(Import(lake=tmp_path / "lake", name=name, files=files, **options))
        run = open_run(tmp_path / "lake", name)
        names = ("prompts", "candidates", "critiques", "rewards", "preferences", "pairs")
        found = {table: run.scan(table).collect().to_dicts() for table in names}
        run.close()
        return found

    return tables


def refusal(tmp_path, *files):
    with pytest.raises(InputError) as refused:
        import_files(Import(lake=tmp_path / "lake", name="x", files=files))
    assert not (tmp_path / "lake" / "runs").exists()
    return str(refused.value)


def asked(tables):
    """Return the user's messages, prompt by prompt."""
    return [
        [m["content"] for m in row["messages"] if m["role"] == "user"] for row in tables["prompts"]
    ]


def labels(tables):
    """Return each answer with its label, by the guide's query."""
    texts = {row["candidate_id"]: row["text"] for row in tables["candidates"]}
    return [
        (texts[row["candidate_id"]], row["aspects"][0]["rating"])
        for row in tables["critiques"]
        if row["critic"].startswith("label:")
    ]


# conversations


def test_last_answers_left_out(file):
    turns = [("human", "Hi"), ("gpt", "Hello."), ("human", "Two?"), ("gpt", "2"), ("gpt", "Two.")]
    path = file({"conversations": [{"from": who, "value": said} for who, said in turns]})
    (prompt,) = read_prompts(path, shape=RowShape(turns="last"))
    assert [m.content for m in prompt.messages] == ["Hi", "Hello.", "Two?"]
    (first,) = read_prompts(path, shape=RowShape(turns="first"))
    assert [m.content for m in first.messages] == ["Hi"]
    with pytest.raises(InputError, match=r"prompts\.turns=last"):
        read_prompts(path)


def test_transcripts_become_pairs(file, load):
    before = "\n\nHuman: Hi\n\nAssistant: Hello:\n\nAssistant is my name.\n\nHuman: Two?"
    sides = {"chosen": f"{before}\n\nAssistant: 2", "rejected": f"{before}\n\nAssistant: 3"}
    assert detect_format(file(sides)) == "pairs"
    found = load(file(sides))
    said = [(m["role"], m["content"]) for m in found["prompts"][0]["messages"]]
    answer = "Hello:\n\nAssistant is my name."
    assert said == [("user", "Hi"), ("assistant", answer), ("user", "Two?")]
    (pair,) = found["pairs"]
    assert [pair[side][0]["content"] for side in ("chosen", "rejected")] == ["2", "3"]
    assert [row["role"] for row in pair["prompt"]] == ["user", "assistant", "user"]


# labels, samples


def test_lists_of_texts(file, load):
    row = {
        "prompt": "Name a prime.",
        "responses": ["7", "9", "7"],
        "labels": [True, False, True],
        "scores": [0.5, -1, 0.25],
        "models": ["m", "n", "m"],
        "category": "numbers",
    }
    found = load(file(row))
    assert labels(found) == [("7", 1), ("9", -1), ("7", 1)]
    assert [row["score"] for row in found["rewards"]] == [0.5, -1, 0.25]
    assert [row["model"] for row in found["candidates"]] == ["m", "n", "m"]
    assert len({row["candidate_id"] for row in found["candidates"]}) == 3
    assert found["prompts"][0]["family"] == "numbers"
    assert {row["critic"] for row in found["critiques"]} == {"label:label"}


def test_refused_rows(file, tmp_path, subtests):
    graded = {"instruction": "x", "completions": []}
    mixed = (file(graded, name="graded.jsonl"), file({"prompt": "x"}, name="prompts.jsonl"))
    for said, row in (
        ("'labels'", {"prompt": "x", "responses": ["a", "b"], "labels": [True]}),
        (
            "line 1: 'rejected'",
            {"chosen": "\n\nHuman: Hi\n\nAssistant: a", "rejected": "\n\nHuman: Hi"},
        ),
    ):
        with subtests.test(said):
            assert said in refusal(tmp_path, file(row))
    assert "one by one" in refusal(tmp_path, *mixed)


# published files


COUNTS = {
    "ifeval_gpt4.jsonl": (60, 60),
    "math500.jsonl": (60,),
    "ultrafeedback_binarized_300.jsonl": (60, 120, 0, 120, 60, 60),
}
"""Rows of the first 60 lines, counted by code independent of the import."""
ROWS = (*("prompts", "candidates", "critiques", "rewards", "preferences", "pairs"),)


def beginning(source, target, rows):
    """Copy the first rows of a published file."""
    text = source.read_text(encoding="utf-8-sig")
    if source.suffix == ".json":
        text = json.dumps(json.loads(text)[:rows])
    else:
        text = "".join(text.splitlines(keepends=True)[: rows + (source.suffix == ".csv")])
    target.write_text(text)
    return target


def test_rows_of_published_files(shared_data, tmp_path, subtests):
    for name, counts in COUNTS.items():
        with subtests.test(name):
            file = beginning(shared_data / name, tmp_path / name, 60)
            done = import_files(
                Import(lake=tmp_path / "lake", name=name[:20].lower(), files=(file,))
            )
            expected = dict(zip(ROWS, counts, strict=False))
            assert dict(done.rows) == {table: n for table, n in expected.items() if n}
