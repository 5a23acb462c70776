"""Files of other people's rows become ordinary rows of the lake, once, or are refused whole."""

import json
import os
import signal
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import placed_rows
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.data.rating_scale import SCALES, number
from lpfloop.loop.data.row_fields import vote_of
from lpfloop.loop.lake.imports import import_files as importing
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_names
from lpfloop.stores.lock import acquire, release

UF = {
    "source": "evol_instruct",
    "instruction": "Name a prime.",
    "models": ["a", "b"],
    "completions": [
        {
            "annotations": {
                "honesty": {"Rating": "5", "Rationale": "sure"},
                "helpfulness": {
                    "Type": ["1"],
                    "Rationale": "clear",
                    "Rating": "4",
                    "Rationale For Rating": "useful",
                },
                "truthfulness": {"Rating": "N/A", "Rationale": ""},
            },
            "custom_system_prompt": "Be honest.",
            "model": "a",
            "principle": "honesty",
            "response": "7",
            "critique": "Good.",
            "overall_score": 8.5,
            "fine-grained_score": 4.5,
        },
        {
            "annotations": {"honesty": {"Rating": "1", "Rationale": "no prime"}},
            "model": "b",
            "principle": "helpfulness",
            "response": "",
            "critique": "Bad.",
            "overall_score": 1,
        },
    ],
    "correct_answers": ["None"],
    "incorrect_answers": ["None"],
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
    """Import files and give the run."""
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
    assert told.stderr.startswith("error: ")
    assert "\n" not in told.stderr.strip()
    assert not (lake / "runs").exists()
    return told.stderr


# prompts


def test_prompts_are_read_from_parquet_json_lists_and_conversations(tmp_path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
    shares = [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes?"}]
    shares.append({"from": "human", "value": "Go."})
    parquet, listed = tmp_path / "p.parquet", tmp_path / "p.json"
    table = [{"prompt": turns, "reference": None, "n": 1}, {"prompt": turns[1:], "n": 2}]
    pq.write_table(pa.Table.from_pylist(table), parquet)
    listed.write_text(json.dumps([{"conversations": shares}, {"question": "1+1?", "answer": "2"}]))
    assert [len(p.messages) for p in read_prompts(parquet)] == [2, 1]
    first, second = read_prompts(listed)
    assert [m.role for m in first.messages] == ["user", "assistant", "user"]
    assert (second.task, second.reference) == ("math", "2")


def test_a_damaged_parquet_file_is_one_clear_sentence(tmp_path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.Table.from_pylist([{"prompt": "x" * 1000}]), path)
    path.write_bytes(path.read_bytes()[:-20])
    assert "not a readable Parquet file" in refusal(tmp_path / "lake", path)


def test_a_place_is_named_in_every_kind_of_file(tmp_path, file) -> None:
    parquet, listed = tmp_path / "p.parquet", tmp_path / "p.json"
    pq.write_table(pa.Table.from_pylist([{"prompt": "x"}]), parquet)
    listed.write_text(' [\n {"prompt": "x"}]')
    places = [next(placed_rows(path))[0] for path in (parquet, listed, file({"prompt": "x"}))]
    assert places == ["row 1", "row 1", "line 1"]


# candidates and ratings


def test_candidates_bring_ratings_and_scores_along(file, load) -> None:
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
    assert (candidate["kind"], candidate["policy"], candidate["model"]) == (
        "external",
        "mine",
        "gpt-x",
    )
    (critique,) = rows(run, "critiques")
    assert critique["critic"] == "human:ada"
    assert critique["aspects"] == [
        {"name": "Correct", "rating": 1, "comment": "it is"},
        {"name": "Clear", "rating": 0, "comment": ""},
    ]
    assert (critique["text"], critique["status"]) == ("fine", "scored")
    (reward,) = rows(run, "rewards")
    assert (reward["reward_model"], reward["score"]) == ("mine:score", 0.25)


def test_a_conversation_that_ends_with_an_answer_is_a_candidate(file, load) -> None:
    turns = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Ho."}]
    run = load(file({"messages": turns}))
    assert rows(run, "prompts")[0]["messages"] == turns[:1]
    assert rows(run, "candidates")[0]["text"] == "Ho."


def test_several_candidates_stand_in_one_row(file, load) -> None:
    entries = [{"response": "a", "ratings": {"Clear": -1}}, {"response": "b"}, {"response": "a"}]
    run = load(file({"prompt": "x", "candidates": entries[:2]}, {"prompt": "x", "response": "b"}))
    assert sorted(c["text"] for c in rows(run, "candidates")) == ["a", "b"]
    assert len(rows(run, "prompts")) == 1


def test_ratings_on_another_scale_are_mapped_as_declared_and_kept(file, load) -> None:
    row = {"prompt": "x", "response": "y", "ratings": {"A": 2, "B": 3, "C": 4, "D": "N/A", "E": 5}}
    run = load(file(row), scale="1-5")
    (critique,) = rows(run, "critiques")
    assert [a["rating"] for a in critique["aspects"]] == [-1, 0, 1, None, 1]
    assert critique["text"] == '\n\n[as given, on 1-5: {"A": 2.0, "C": 4.0, "D": "N/A"}]'
    strict = load(file(row), name="y", scale="1-5", failure=1, success=5)
    (critique,) = rows(strict, "critiques")
    assert [a["rating"] for a in critique["aspects"]] == [0, 0, 0, None, 1]


def test_a_rating_off_the_scale_is_refused_with_the_remedy(file, tmp_path) -> None:
    path = file({"prompt": "x", "response": "y", "ratings": {"A": 4}})
    said = refusal(tmp_path / "lake", path)
    assert "line 1: the rating 4 of 'A' is not on the scale three-level" in said
    assert "--scale" in said


def test_ratings_that_can_not_be_read_are_null_with_a_reason(file, load) -> None:
    run = load(file({"prompt": "x", "response": "y", "ratings": {"A": "good", "B": True}}))
    (critique,) = rows(run, "critiques")
    assert [a["rating"] for a in critique["aspects"]] == [None, None]
    assert critique["status"] == "unrated"
    assert '"good"' in critique["text"]


@given(st.sampled_from(sorted(SCALES)), st.floats(-1, 10), st.floats(-1, 10))
def test_a_scale_never_turns_the_order_round(name, one, other) -> None:
    scale = SCALES[name]
    low, high = sorted((one, other))
    assert scale.level(low) <= scale.level(high)
    assert [scale.level(scale.value(level)) for level in (-1, 0, 1)] == [-1, 0, 1]


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text()))
def test_what_is_no_number_is_none(value) -> None:
    found = number(value)
    assert found is None or (found == float(value) and not isinstance(value, bool))
    assert vote_of(value) in (None, "first", "second", "tie")


# published formats


def test_ultrafeedback_keeps_every_annotation(file, load) -> None:
    run = load(file(UF), source="uf")
    one, two = rows(run, "candidates")
    assert (one["model"], one["text"], two["text"]) == ("a", "7", "")
    assert (one["principle"], two["principle"]) == ("honesty: Be honest.", "helpfulness")
    first, second = rows(run, "critiques")
    assert {a["name"]: a["rating"] for a in first["aspects"]} == {
        "honesty": 1,
        "helpfulness": 1,
        "truthfulness": None,
    }
    assert first["aspects"][1]["comment"] == "useful\n\nclear"
    assert first["text"].startswith("Good.\n\n[as given, on 1-5:")
    assert second["text"] == "Bad."
    assert [(r["reward_model"], r["score"]) for r in rows(run, "rewards")] == [
        ("uf:overall_score", 8.5),
        ("uf:fine-grained_score", 4.5),
        ("uf:overall_score", 1.0),
    ]


@pytest.mark.parametrize("conversational", [False, True])
def test_binarised_rows_become_pairs_and_preferences(file, load, conversational) -> None:
    row = {
        "prompt": "Hi?",
        "chosen": "Ho.",
        "rejected": "No.",
        "score_chosen": 8,
        "score_rejected": 3,
    }
    if conversational:
        asked = {"role": "user", "content": "Hi?"}
        for side in ("chosen", "rejected"):
            row[side] = [asked, {"role": "assistant", "content": row[side]}]
        row["messages"] = row["chosen"]
    run = load(file(row), source="uf")
    (pair,), (preference,) = rows(run, "pairs"), rows(run, "preferences")
    assert pair["prompt"] == [{"role": "user", "content": "Hi?"}]
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("Ho.", "No.")
    assert (pair["rule"], pair["chosen_reward"]) == ("imported", 8)
    assert (preference["preferred"], preference["annotator"]) == ("first", "uf")
    assert [r["score"] for r in rows(run, "rewards")] == [8, 3]


def test_sides_with_other_prompts_are_refused(file, tmp_path) -> None:
    def said(asked, text):
        return [{"role": "user", "content": asked}, {"role": "assistant", "content": text}]

    path = file({"chosen": said("a", "b"), "rejected": said("c", "d")})
    assert "do not share their prompt" in refusal(tmp_path / "lake", path)


def test_alpaca_preferences_and_outputs_are_read(file, load) -> None:
    shared = {"instruction": "Say", "input": "it", "output_1": "a", "output_2": "b"}
    votes = [1, 2, 0, 1.5, 1.2, None, "no"]
    run = load(
        file(*({**shared, "annotator": f"judge-{n}", "preference": v} for n, v in enumerate(votes)))
    )
    found = [row["preferred"] for row in rows(run, "preferences")]
    assert found == ["first", "second", "tie", "tie", "first", None, None]
    assert rows(run, "preferences")[4]["text"] == "[preference as given: 1.2]"
    assert rows(run, "prompts")[0]["messages"][0]["content"] == "Say\n\nit"
    outputs = load(
        file(
            {"instruction": "Say", "output": "a", "generator": "m", "dataset": "d"}, name="o.jsonl"
        ),
        name="outputs",
    )
    assert rows(outputs, "candidates")[0]["model"] == "m"


def test_a_file_that_looks_like_nothing_known_is_refused(file, tmp_path) -> None:
    assert "name it: --as" in refusal(tmp_path / "lake", file({"text": "x"}))
    assert "no such format" in refusal(tmp_path / "lake", file({"prompt": "x"}), "--as", "xls")
    assert "holds no rows" in refusal(tmp_path / "lake", file())
    assert "No such file" in refusal(tmp_path / "lake", tmp_path / "none.jsonl")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a plain file" in refusal(tmp_path / "lake", tmp_path / "pipe")


def test_a_folder_is_imported_as_its_files(file, load, tmp_path) -> None:
    (tmp_path / "shards").mkdir()
    shards = [file({"prompt": name}, name=f"shards/{name}.jsonl") for name in "ab"]
    told = [load(tmp_path / "shards", name="folder"), load(*shards, name="files")]
    ids = [[row["prompt_id"] for row in rows(run, "prompts")] for run in told]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2


@pytest.mark.parametrize(
    ("name", "form", "table", "count"),
    [
        ("ultrafeedback_binarized_300.jsonl", "pairs", "pairs", 300),
        ("justeval_multi_aspect.jsonl", "justeval", "critiques", 378),
        ("pandalm.jsonl", "pandalm", "preferences", 5 * 496),
        ("gsm8k_train_first4000.jsonl", "prompts", "prompts", 4000),
    ],
)
def test_published_files_are_recognised_and_read(shared_data, load, name, form, table, count):
    assert importing.detected(shared_data / name) == form
    run = load(shared_data / name)
    assert run.scan(table).select(pl.len()).collect().item() == count


# whole, once, or not at all


def test_the_same_files_again_do_nothing(file, tmp_path) -> None:
    path = file(*({"prompt": f"p{n}", "response": "r"} for n in range(30)))
    lake = tmp_path / "lake"
    first = invoke("import", path, "--run", "x", "--lake", lake)
    before = run_digest(lake / "runs" / "x")
    second = invoke("import", path, "--run", "x", "--lake", lake)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "nothing to do" in second.stdout
    assert run_digest(lake / "runs" / "x") == before
    other = invoke("import", file({"prompt": "z"}, name="z.jsonl"), "--run", "x", "--lake", lake)
    assert other.exit_code == Exit.BAD_INPUT
    assert "choose another name with --run" in other.stderr
    assert run_digest(lake / "runs" / "x") == before


def test_a_bad_last_row_leaves_nothing(file, tmp_path) -> None:
    path = file(*({"prompt": f"p{n}"} for n in range(2500)), {"prompt": 3})
    assert "line 2501: 'prompt' must be a text" in refusal(tmp_path / "lake", path)


def test_an_id_that_stands_for_two_things_is_refused(file, tmp_path) -> None:
    path = file({"prompt_id": "1", "prompt": "a"}, {"prompt_id": "1", "prompt": "b"})
    said = refusal(tmp_path / "lake", path)
    assert "line 2: the id '1' is that of another prompt on line 1" in said


@pytest.mark.crash
@pytest.mark.parametrize(
    "place", ["journal.create.after", "journal.plan.after", "journal.commit.before"]
)
def test_an_import_that_was_killed_is_finished_by_the_same_command(file, tmp_path, place) -> None:
    path = file(*({"prompt": f"p{n}", "response": f"r{n}"} for n in range(2500)))
    lake = tmp_path / "lake"
    arguments = ("import", path, "--lake", lake, "--run")
    killed = subprocess.run(
        [sys.executable, "-m", "lpfloop", *arguments, "killed"],
        env={**os.environ, "LPFLOOP_FAILPOINT": f"{place}:kill"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    for name in ("killed", "whole"):
        told = invoke(*arguments, name)
        assert told.exit_code == 0, told.stderr
        assert "nothing to do" not in told.stdout
    assert run_digest(lake / "runs" / "killed") == run_digest(lake / "runs" / "whole")


def test_an_imported_run_reads_like_any_other(file, tmp_path) -> None:
    lake = tmp_path / "lake"
    invoke("import", file(UF), "--run", "x", "--lake", lake)
    status = invoke("status", "x", "--lake", lake, "--json")
    assert json.loads(status.stdout)["iterations"][0]["counts"]["candidates"] == 2
    for command in (["lake", "verify", "x", "--deep"], ["lake", "digest", "x"], ["critiques", "x"]):
        told = invoke(*command, "--lake", lake)
        assert told.exit_code == 0, told.stderr
        assert told.stdout
    for command in (["resume", "x"], ["run", "--run", "x"]):
        told = invoke(*command, "--lake", lake)
        assert told.exit_code == Exit.BAD_INPUT
        assert "was imported and has no loop" in told.stderr


# annotations


def test_annotations_are_added_beside_the_machines_ratings(file, load, tmp_path) -> None:
    run = load(file(UF))
    one, two = (row["candidate_id"] for row in rows(run, "candidates"))
    before = rows(run, "critiques")
    rated = {"candidate_id": one, "annotator": "ada", "ratings": {"honesty": -1}, "text": "Hm."}
    vote = {"first_id": one, "second_id": two, "annotator": "ada", "preferred": "second"}
    notes = file(rated, {**vote, "order": "swapped"}, rated, name="notes.jsonl")
    arguments = ("import", notes, "--run", "x", "--lake", tmp_path / "lake")
    told = invoke(*arguments)
    assert told.exit_code == 0, told.stderr
    assert rows(run, "critiques")[:2] == before
    added = rows(run, "critiques")[2:]
    assert [(c["critic"], c["candidate_id"], c["text"]) for c in added] == [
        ("human:ada", one, "Hm.")
    ]
    (preference,) = rows(run, "preferences")
    assert (preference["annotator"], preference["preferred"]) == ("human:ada", "second")
    assert preference["order"] == "swapped"
    assert "nothing to do" in invoke(*arguments).stdout
    # Another file with the same words says nothing new.
    more = file(rated, {**rated, "annotator": "bob"}, name="more.jsonl")
    assert invoke("import", more, "--run", "x", "--lake", tmp_path / "lake").exit_code == 0
    assert len(rows(run, "critiques")) == 4


def test_nobody_annotates_a_run_that_is_worked_on(file, load, tmp_path) -> None:
    run = load(file(UF))
    one = rows(run, "candidates")[0]["candidate_id"]
    notes = file({"candidate_id": one, "annotator": "ada", "ratings": {"A": 1}}, name="n.jsonl")
    held = acquire(run.folder)
    told = invoke("import", notes, "--run", "x", "--lake", tmp_path / "lake")
    release(held)
    assert told.exit_code == Exit.BAD_INPUT
    assert "in use by another process" in told.stderr
    assert len(rows(run, "critiques")) == 2


def test_annotations_of_unknown_candidates_are_refused(file, load, tmp_path) -> None:
    run = load(file(UF))
    lake = tmp_path / "lake"
    notes = file(
        {"candidate_id": "cand-0", "annotator": "ada", "ratings": {"A": 1}}, name="n.jsonl"
    )
    told = invoke("import", notes, "--run", "x", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert "the run has no candidate 'cand-0'" in told.stderr
    assert invoke("import", notes, "--run", "unseen", "--lake", lake).exit_code == Exit.BAD_INPUT
    assert run_names(lake) == ["x"]
    del run
