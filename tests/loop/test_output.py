"""The forms of rows: each reads back as what it was; on a terminal, in a pipe, on a full disk."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.loop.lake.query.forms import Form, FormError, OutputError
from lpfloop.loop.lake.query.row_output import BATCH, TABLE_ROWS, write_frame, write_objects
from lpfloop.stores.records import Message

HOSTILE = '\x1b[2J"quoted",\n\u202e\x9b\x7f=1+1 é 数'
ASPECTS = [{"name": "Factuality", "rating": -1, "comment": HOSTILE}]
FRAME = pl.DataFrame(
    {
        "candidate_id": ["cand-0123456789abcdef0123456789abcdef", "cand-1"],
        "text": [HOSTILE, ""],
        "aspects": [ASPECTS, None],
        "rating": pl.Series([-1, None], dtype=pl.Int8),
        "score": [float("nan"), 0.1],
        "bytes": [b"\xff\x00", None],
        "when": [datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), None],
        "took": [timedelta(hours=1), None],
    }
)


def written(capfdbinary, frame, form=Form.AUTO, **options):
    write_frame(frame, form, **options)
    return capfdbinary.readouterr().out


def test_json_lines_hold_the_rows_with_nothing_hidden(capfdbinary):
    data = written(capfdbinary, FRAME, Form.JSONL)
    first, second = map(json.loads, data.decode().splitlines())
    assert first["text"] == HOSTILE
    assert first["aspects"] == ASPECTS
    assert first["score"] is None
    assert second == {
        **dict.fromkeys(FRAME.columns),
        "candidate_id": "cand-1",
        "text": "",
        "score": 0.1,
    }
    for hidden in ("\x1b", "\u202e", "\x9b", "\x7f"):
        assert hidden not in data.decode()
    assert "数" in data.decode()


def test_json_is_one_document(capfdbinary):
    assert json.loads(written(capfdbinary, FRAME, as_json=True))[0]["text"] == HOSTILE
    assert json.loads(written(capfdbinary, FRAME.clear(), as_json=True)) == []


def test_csv_has_nested_values_as_json(capfdbinary):
    data = written(capfdbinary, FRAME, Form.CSV)
    first, second = csv.DictReader(io.StringIO(data.decode(), newline=""))
    assert list(first) == FRAME.columns
    assert first["text"] == HOSTILE
    assert json.loads(first["aspects"]) == ASPECTS
    assert (first["rating"], first["took"]) == ("-1", "PT1H")
    assert (second["text"], second["aspects"], second["rating"]) == ("", "", "")


def test_a_text_of_csv_is_no_formula_and_a_number_stays_one(capfdbinary):
    texts = ["=1+1", "@SUM(1)", "+1+1", "-1+1", "- it", "\t=1", "\r=1", "-5", "+3.25", "-1e-7", ""]
    frame = pl.DataFrame({"text": [*texts, None], "n": range(-len(texts), 1)})
    data = written(capfdbinary, frame, Form.CSV).decode()
    rows = list(csv.DictReader(io.StringIO(data, newline="")))
    guarded = [f"'{text}" for text in texts[:7]]
    assert [row["text"] for row in rows] == [*guarded, *texts[7:], ""]
    assert [row["n"] for row in rows] == [str(n) for n in range(-len(texts), 1)]


def test_parquet_is_the_frame(capfdbinary):
    data = written(capfdbinary, FRAME, Form.PARQUET)
    assert pl.read_parquet(io.BytesIO(data)).equals(FRAME, null_equal=True)


@pytest.mark.parametrize("form", [Form.CSV, Form.PARQUET])
def test_no_rows_have_their_columns(capfdbinary, form):
    data = written(capfdbinary, FRAME.clear(), form)
    read = pl.read_csv if form is Form.CSV else pl.read_parquet
    assert read(io.BytesIO(data)).columns == FRAME.columns


def test_no_rows_are_said(capfd):
    write_frame(FRAME.clear(), Form.JSONL)
    assert capfd.readouterr() == ("", "0 rows\n")


@pytest.mark.parametrize("rows", [BATCH - 1, BATCH, 3 * BATCH + 1])
def test_many_batches_are_one_whole_in_order(capfdbinary, rows):
    frame = pl.DataFrame({"n": range(rows)}).lazy()
    for form, read in ((Form.JSONL, pl.read_ndjson), (Form.CSV, pl.read_csv)):
        data = written(capfdbinary, frame, form)
        assert read(io.BytesIO(data))["n"].to_list() == list(range(rows))
    assert len(json.loads(written(capfdbinary, frame, as_json=True))) == rows


@settings(max_examples=50)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_comes_back(texts):
    frame = pl.DataFrame({"text": texts, "nested": [[{"content": text}] for text in texts]})
    real, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO())
    try:
        write_frame(frame, Form.JSONL)
        found = sys.stdout.buffer.getvalue().decode().split("\n")[:-1]
    finally:
        sys.stdout = real
    assert [json.loads(line)["text"] for line in found] == texts
    assert [json.loads(line)["nested"][0]["content"] for line in found] == texts


def test_a_table_shows_some_columns_short_and_harmless(capfd):
    write_frame(FRAME, Form.TABLE, ("candidate_id", "text", "rating"))
    out, err = capfd.readouterr()
    assert "cand-012345678 " in out
    assert "\\u{1b}" in out
    assert "\x1b" not in out
    assert "score" not in out
    assert "None" not in out
    assert err == "2 rows\n"


def test_a_table_ends_where_nobody_reads_on(capfd):
    write_frame(pl.DataFrame({"n": range(TABLE_ROWS + 5)}), Form.TABLE)
    out, err = capfd.readouterr()
    assert str(TABLE_ROWS - 1) in out
    assert str(TABLE_ROWS) not in out
    assert "--format jsonl" in err


def test_objects_are_written_by_their_fields(capfdbinary):
    write_objects([Message(role="user", content="x")], ("content",), Form.CSV, as_json=False)
    assert capfdbinary.readouterr().out == b"content\nx\n"


def test_two_forms_at_once_are_refused(capfdbinary):
    with pytest.raises(FormError, match="exclude each other"):
        write_frame(FRAME, Form.CSV, as_json=True)
    assert capfdbinary.readouterr().out == b""


SCRIPT = """
import sys, polars as pl
from lpfloop.loop.run.terminal import guard_streams
from lpfloop.loop.lake.query.row_output import write_frame
from lpfloop.loop.lake.query.forms import Form
guard_streams()
frame = pl.select(n=pl.int_range(int(sys.argv[2])), text=pl.lit("\\u202e\\x1bx")).lazy()
try:
    write_frame(frame, Form(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
    sys.exit(9)
"""


def start(form, rows, stdout):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, form, str(rows)], stdout=stdout, stderr=subprocess.PIPE
    )


def ended(process):
    """Return how a process ended, and what it said."""
    said = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(timeout=300), said


def shown(terminal):
    """Return all that a process which has ended wrote to a terminal: it may come in pieces."""
    data = b""
    with suppress(OSError):  # Linux says so at the end
        while more := os.read(terminal, 10_000):
            data += more
    return data.decode()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_reader_that_goes_away_ends_it_quietly(form):
    process = start(form, 3_000_000, subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert ended(process) == (0, "")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_full_disk_is_an_error(form):
    with Path("/dev/full").open("wb") as full:
        code, said = ended(start(form, 10, full))
    assert code == 9
    assert said.startswith(f"{OutputError.__name__} stdout cannot be written: No space left")


@pytest.mark.parametrize(
    ("form", "seen"),
    [
        ("auto", "\\u{202e}\\u{1b}x"),
        ("csv", "\\u{202e}\\u{1b}x"),
        ("jsonl", "\\u202e\\u001bx"),
    ],
)
def test_on_a_terminal_nothing_hidden_gets_through(form, seen):
    ours, theirs = pty.openpty()
    process = start(form, 2, theirs)
    os.close(theirs)
    code, _ = ended(process)
    data = shown(ours)
    os.close(ours)
    assert code == 0
    assert seen in data
    assert "\u202e" not in data
    assert "\x1bx" not in data


def test_parquet_is_no_text_for_a_terminal():
    ours, theirs = pty.openpty()
    process = start("parquet", 2, theirs)
    os.close(theirs)
    code, said = ended(process)
    os.close(ours)
    assert code == 9
    assert said.startswith(f"{FormError.__name__} Parquet is not text")
