"""Rows that cannot be read are left out where the user says so, each with a receipt."""

import json
import os
import signal
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import RowError, placed_rows
from lpfloop.loop.data.row_notes import RowNotes
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.digest import run_digest

GOOD = '{"prompt": "a", "response": "x", "note": 1}\n'
LONG = '{"prompt": "' + "x" * (10 * 2**20) + '"}\n'
BAD = {
    "broken\n": "not valid JSON",
    '{"prompt": 3}\n': "'prompt' must be a text, but is a number",
    "[]\n": "expected a JSON object",
    LONG: "longer than 10485760 bytes",
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def receipts(lake, name):
    run = open_run(lake, name)
    try:
        rows = run.scan("receipts").select("outcome", "count", "examples").collect().rows()
    finally:
        run.close()
    return [(outcome, count, list(examples)) for outcome, count, examples in rows]


@pytest.fixture
def file(tmp_path):
    def write(text, name="rows.jsonl"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("bad", BAD, ids=["broken", "no-text", "list", "long"])
def test_a_bad_row_is_left_out_with_its_place_and_reason(file, tmp_path, bad):
    path, lake = file(GOOD + bad + GOOD.replace("a", "b")), tmp_path / "lake"
    arguments = ("import", path, "--run", "x", "--lake", lake)
    refused = invoke(*arguments)
    assert refused.exit_code == Exit.BAD_INPUT
    assert f"line 2: {BAD[bad]}" in refused.stderr
    assert "--skip-bad" in refused.stderr
    assert not lake.exists()
    told = invoke(*arguments, "--skip-bad")
    assert told.exit_code == 0, told.stderr
    assert f"1 row was left out as unreadable: rows.jsonl, line 2: {BAD[bad]}" in told.stdout
    kept, left_out = receipts(lake, "x")
    assert kept == ("kept", 2, [])
    assert left_out[:2] == ("unreadable", 1)
    assert left_out[2][0].startswith(f"rows.jsonl, line 2: {BAD[bad]}")


def test_lines_that_are_no_text_are_bad_rows_and_the_next_ones_are_read(file):
    notes = RowNotes(skips=True)
    path = file(GOOD.encode() + b'{"prompt": "\xff"}\n' + GOOD.encode())
    assert [place for place, _ in placed_rows(path, notes.bad)] == ["line 1", "line 3"]
    assert "line 2: not UTF-8 at byte 13 of the line" in notes.skipped[0]


@pytest.mark.parametrize(
    ("text", "places", "reason"),
    [
        ("prompt,b\na,b\nc\nd,e\n", ["line 2", "line 4"], "line 3: the row has 1 columns"),
        ('prompt,b\n"a"x,b\n"c\nd",e\n', ["line 3"], "line 2: not a readable row of CSV"),
    ],
)
def test_a_csv_file_goes_on_after_a_bad_row(file, text, places, reason):
    notes = RowNotes(skips=True)
    assert [place for place, _ in placed_rows(file(text, "a.csv"), notes.bad)] == places
    assert reason in notes.skipped[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('prompt,b\na,b\n"c,d\ne,f\n', "unclosed.csv"),
        ('"a"x,b\nc,d\n', "header.csv"),
        (b"prompt\na\n\xff\nb\n", "latin.csv"),
        ('[{"prompt": "a"}, {"prompt": }]', "list.json"),
        (b"PAR1 and no more", "table.parquet"),
    ],
)
def test_a_file_that_cannot_go_on_is_refused_all_the_same(file, tmp_path, text, name):
    path, lake = file(text, name), tmp_path / "lake"
    told = invoke("import", path, "--run", "x", "--lake", lake, "--skip-bad")
    assert told.exit_code == Exit.BAD_INPUT, told.stdout
    assert told.stderr.startswith(f"error: {path}")
    assert not lake.exists()


def test_too_many_bad_rows_refuse_the_file(file, tmp_path):
    path, lake = file(GOOD + "broken\n" * 2), tmp_path / "lake"
    arguments = ("import", path, "--run", "x", "--lake", lake, "--skip-bad")
    told = invoke(*arguments)
    assert told.exit_code == Exit.BAD_INPUT
    assert "2 of 3 rows cannot be read, more than the 0.5 that --bad-share allows" in told.stderr
    assert not lake.exists()
    assert invoke(*arguments, "--bad-share", 0.7).exit_code == 0


def test_a_row_left_out_leaves_nothing_behind(file, tmp_path):
    """Its prompt is new where another row has it."""
    rows = [
        {"prompt_id": "1", "prompt": "a", "response": "x"},
        # Its first answer is good, the second is none.
        {"prompt_id": "2", "prompt": "b", "candidates": [{"response": "y"}, {"model": "m"}]},
        {"prompt_id": "1", "prompt": "c", "response": "y"},
        {"prompt_id": "2", "prompt": "b", "response": "y"},
    ]
    path = file("".join(json.dumps(row) + "\n" for row in rows))
    lake = tmp_path / "lake"
    told = invoke("import", path, "--run", "x", "--lake", lake, "--skip-bad")
    assert told.exit_code == 0, told.stderr
    run = open_run(lake, "x")
    try:
        prompts = run.scan("prompts").select("prompt_id").collect()["prompt_id"].to_list()
        answers = run.scan("candidates").select(pl.len()).collect().item()
    finally:
        run.close()
    assert (prompts, answers) == (["1", "2"], 2)


def test_the_flag_is_part_of_the_import_and_repeating_it_does_nothing(file, tmp_path):
    path, lake = file(GOOD), tmp_path / "lake"
    arguments = ("import", path, "--run", "x", "--lake", lake)
    assert invoke(*arguments, "--skip-bad").exit_code == 0
    before = run_digest(lake / "runs" / "x")
    again = invoke(*arguments, "--skip-bad")
    assert "nothing to do" in again.stdout
    assert run_digest(lake / "runs" / "x") == before
    other = invoke(*arguments)
    assert other.exit_code == Exit.BAD_INPUT
    assert "the same read in another way" in other.stderr


@pytest.mark.crash
def test_an_import_with_bad_rows_that_was_killed_is_finished(file, tmp_path):
    texts = [f'{{"prompt": "p{n}"}}\n' if n % 7 else "broken\n" for n in range(2500)]
    path, lake = file("".join(texts)), tmp_path / "lake"
    arguments = ("import", path, "--lake", lake, "--skip-bad", "--run")
    killed = subprocess.run(
        [sys.executable, "-m", "lpfloop", *map(str, arguments), "killed"],
        env={**os.environ, "LPFLOOP_FAILPOINT": "journal.commit.before:kill"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    for name in ("killed", "whole"):
        assert invoke(*arguments, name).exit_code == 0
    assert run_digest(lake / "runs" / "killed") == run_digest(lake / "runs" / "whole")
    told = receipts(lake, "killed")
    assert sum(count for outcome, count, _ in told if outcome == "unreadable") == 358
    assert sum(count for _, count, _ in told) == 2500


def test_status_says_which_fields_an_import_did_not_use(file, tmp_path):
    lake = tmp_path / "lake"
    done = invoke("import", file(GOOD), "--run", "x", "--lake", lake, "--json")
    assert json.loads(done.stdout)["unused"] == {"rows": 1, "fields": {"note": 1}}
    told = invoke("status", "x", "--lake", lake)
    assert "1 field of 1 rows is not used: note (1)" in told.stdout
    status = invoke("status", "x", "--lake", lake, "--json")
    assert json.loads(status.stdout)["unused"]["fields"] == {"note": 1}


def test_without_leave_no_row_is_left_out(tmp_path):
    notes = RowNotes(remedy="; ask")
    with pytest.raises(ValueError, match="f, line 1: odd; ask"):
        notes.bad(tmp_path / "f", "line 1", RowError("odd"))
    assert notes.new_receipts(3) == []
