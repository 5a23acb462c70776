"""Other people's files become ordinary rows of the lake, once, or lpfloop refuses them whole."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lpfloop
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.digest import run_digest

TWO = {
    "prompt": "Name a prime.",
    "candidates": [
        {"response": "7", "ratings": {"honesty": 1}},
        {"response": "8", "ratings": {"honesty": -1}},
    ],
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def file(tmp_path):
    def write(*rows, name: str = "rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Import files and return the run."""
    opened = []

    def run(*files, name: str = "x", **options):
        import_files(Import(lake=tmp_path / "lake", name=name, files=files, **options))
        opened.append(open_run(tmp_path / "lake", name))
        return opened[-1]

    yield run
    for reader in opened:
        reader.close()


def rows(run, table):
    return run.scan(table).collect().to_dicts()


def refusal(lake, *arguments):
    told = invoke("import", *arguments, "--run", "x", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT, told.stdout
    assert told.stderr.startswith("error LPF-")
    assert "\n" not in told.stderr.strip()
    assert not (lake / "runs").exists()
    return told.stderr


def test_prompts_of_every_file_kind(tmp_path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
    said = (("human", "Hi?"), ("gpt", "Yes?"), ("human", "Go."))
    shares = [{"from": who, "value": text} for who, text in said]
    parquet, listed = tmp_path / "p.parquet", tmp_path / "p.json"
    table = [{"prompt": turns, "reference": None, "n": 1}, {"prompt": turns[1:], "n": 2}]
    pq.write_table(pa.Table.from_pylist(table), parquet)
    listed.write_text(json.dumps([{"conversations": shares}, {"question": "1+1?", "answer": "2"}]))
    assert [len(p.messages) for p in read_prompts(parquet)] == [2, 1]
    first, second = read_prompts(listed)
    assert [m.role for m in first.messages] == ["user", "assistant", "user"]
    assert (second.task, second.reference) == ("math", "2")


def test_candidates_bring_ratings_and_scores(file, load) -> None:
    row = {
        "prompt": "2 + 3?",
        "reference": "5",
        "response": "5",
        "model": "gpt-x",
        "annotator": "ada",
        "ratings": {"Correct": 1, "Clear": 0},
        "comments": {"Correct": "it is"},
        "critique": "fine",
        "score": 0.25,
    }
    run = load(file(row), source="mine")
    ((prompt,), (candidate,)) = rows(run, "prompts"), rows(run, "candidates")
    assert (prompt["source"], prompt["reference"]) == ("mine", "5")
    found = [candidate[name] for name in ("kind", "policy", "model")]
    assert found == ["external", "mine", "gpt-x"]
    (critique,) = rows(run, "critiques")
    assert critique["critic"] == "human:ada"
    assert critique["aspects"] == [
        {"name": "Correct", "rating": 1, "comment": "it is"},
        {"name": "Clear", "rating": 0, "comment": ""},
    ]
    assert (critique["text"], critique["status"]) == ("fine", "scored")
    (reward,) = rows(run, "rewards")
    assert (reward["reward_model"], reward["score"]) == ("mine:score", 0.25)


def test_ratings_on_another_scale(file, load) -> None:
    row = {"prompt": "x", "response": "y", "ratings": {"A": 2, "B": 3, "C": 4, "D": "N/A", "E": 5}}
    run = load(file(row), scale="1-5")
    (critique,) = rows(run, "critiques")
    assert [a["rating"] for a in critique["aspects"]] == [-1, 0, 1, None, 1]
    assert critique["text"] == '\n\n[as given, on 1-5: {"A": 2.0, "C": 4.0, "D": "N/A"}]'


def test_binarised_rows_become_pairs(file, load) -> None:
    asked = {"role": "user", "content": "Hi?"}
    row = {"prompt": "Hi?", "score_chosen": 8, "score_rejected": 3}
    for side, text in (("chosen", "Ho."), ("rejected", "No.")):
        row[side] = [asked, {"role": "assistant", "content": text}]
    row["messages"] = row["chosen"]
    run = load(file(row), source="uf")
    (pair,), (preference,) = rows(run, "pairs"), rows(run, "preferences")
    assert pair["prompt"] == [{"role": "user", "content": "Hi?"}]
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("Ho.", "No.")
    assert (pair["rule"], pair["chosen_reward"]) == ("imported", 8)
    assert (preference["preferred"], preference["annotator"]) == ("first", "uf")
    assert [r["score"] for r in rows(run, "rewards")] == [8, 3]


def test_unknown_files_are_refused(file, tmp_path) -> None:
    lake = tmp_path / "lake"
    off = refusal(lake, file({"prompt": "x", "response": "y", "ratings": {"A": 4}}))
    assert "line 1" in off
    assert "--scale" in off
    assert "--as" in refusal(lake, file({"text": "x"}))
    bad_last = file(*({"prompt": f"p{n}"} for n in range(2100)), {"prompt": 3})
    assert "line 2101: 'prompt'" in refusal(lake, bad_last)
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in refusal(lake, tmp_path / "pipe")


def test_same_files_again_do_nothing(file, tmp_path) -> None:
    path = file(*({"prompt": f"p{n}", "response": "r"} for n in range(30)))
    lake = tmp_path / "lake"
    first = invoke("import", path, "--run", "x", "--lake", lake)
    assert invoke("lake", "verify", "x", "--deep", "--lake", lake).exit_code == 0
    assert "imported" in invoke("resume", "x", "--lake", lake).stderr
    before = run_digest(lake / "runs" / "x")
    second = invoke("import", path, "--run", "x", "--lake", lake)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert run_digest(lake / "runs" / "x") == before
    other = invoke("import", file({"prompt": "z"}, name="z.jsonl"), "--run", "x", "--lake", lake)
    assert other.exit_code == Exit.BAD_INPUT
    assert run_digest(lake / "runs" / "x") == before


def test_candidate_with_two_rewards_is_listed_once(file, tmp_path):
    """An UltraFeedback row gives each answer an overall score, and the mean of its ratings."""
    completions = [
        {
            "annotations": {"honesty": {"Rating": "1", "Rationale": "No."}},
            "model": "m",
            "response": text,
            "critique": "No.",
            "overall_score": overall,
            "fine-grained_score": mean,
        }
        for text, overall, mean in (("7", 8, 1.5), ("8", 2, 2.5))
    ]
    row = {"instruction": "Name a prime.", "models": ["m"] * 2, "completions": completions}
    lake = tmp_path / "lake"
    told = invoke("import", file(row), "--run", "x", "--lake", lake)
    assert told.exit_code == 0, told.stderr

    def listed(*arguments):
        told = invoke(*arguments, "--lake", lake, "--format", "jsonl")
        assert told.exit_code == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    with lpfloop.open("x", lake=lake) as run:
        assert run.rows("rewards").collect().height == 4
        found = run.candidates(sort="-reward").collect()
        assert found["text"].to_list() == ["8", "7"]
        assert found["reward"].to_list() == [2.5, 1.5]
        assert found["task"].to_list() == ["general"] * 2
        assert run.candidates().collect().columns == found.columns
    assert [row["reward"] for row in listed("candidates", "x", "--sort", "reward")] == [1.5, 2.5]
    assert len(listed("critiques", "x", "--min-reward", "2")) == 1
    failures = "select status, count(*) as n from failures group by all"
    assert [row["n"] for row in listed("sql", failures, "x")] == [2]
    shown = invoke("show", found["candidate_id"][1], "x", "--lake", lake).stdout
    assert "reward 8.0" in shown
    assert "reward 1.5" in shown


def test_annotations_are_added(file, load, tmp_path) -> None:
    run = load(file(TWO))
    one, two = (row["candidate_id"] for row in rows(run, "candidates"))
    before = rows(run, "critiques")
    rated = {"candidate_id": one, "annotator": "ada", "ratings": {"honesty": -1}, "text": "Hm."}
    vote = {"first_id": one, "second_id": two, "annotator": "ada", "preferred": "second"}
    notes = file(rated, {**vote, "order": "swapped"}, rated, name="notes.jsonl")
    arguments = ("import", notes, "--run", "x", "--lake", tmp_path / "lake")
    told = invoke(*arguments)
    assert told.exit_code == 0, told.stderr
    assert rows(run, "critiques")[:2] == before
    (added,) = rows(run, "critiques")[2:]
    assert [added[n] for n in ("critic", "candidate_id", "text")] == ["human:ada", one, "Hm."]
    (preference,) = rows(run, "preferences")
    assert (preference["annotator"], preference["preferred"]) == ("human:ada", "second")
    assert preference["order"] == "swapped"
    assert invoke(*arguments).exit_code == 0
    assert len(rows(run, "critiques")) == 3
    with lpfloop.open("x", lake=tmp_path / "lake") as again:
        said = again.show(one).document["critiques"]
    assert [c["critic"] == "human:ada" for c in said if c["candidate_id"] == one] == [False, True]
