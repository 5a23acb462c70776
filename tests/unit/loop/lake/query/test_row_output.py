"""Output formats of rows: each reads back unchanged; on a terminal, in a pipe, on a full disk."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import polars as pl

from lpfloop.loop.lake.query.forms import Form
from lpfloop.loop.lake.query.row_output import write_frame

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


def test_json_lines_hide_nothing(capfdbinary):
    data = written(capfdbinary, FRAME, Form.JSONL)
    first, second = map(json.loads, data.decode().splitlines())
    assert first["text"] == HOSTILE
    assert first["aspects"] == ASPECTS
    assert first["score"] is None
    assert (second["text"], second["aspects"], second["score"]) == ("", None, 0.1)
    for hidden in ("\x1b", "\u202e", "\x9b", "\x7f"):
        assert hidden not in data.decode()
    assert "数" in data.decode()


def test_parquet_and_csv_read_back(capfdbinary):
    data = written(capfdbinary, FRAME, Form.PARQUET)
    assert pl.read_parquet(io.BytesIO(data)).equals(FRAME, null_equal=True)
    data = written(capfdbinary, FRAME, Form.CSV)
    first, second = csv.DictReader(io.StringIO(data.decode(), newline=""))
    assert list(first) == FRAME.columns
    assert first["text"] == HOSTILE
    assert json.loads(first["aspects"]) == ASPECTS
    assert (first["rating"], first["took"]) == ("-1", "PT1H")
    assert (second["text"], second["aspects"], second["rating"]) == ("", "", "")


def test_csv_text_escapes_formulas(capfdbinary):
    texts = ["=1+1", "@SUM(1)", "+1+1", "-1+1", "- it", "\t=1", "\r=1", "-5", "+3.25", "-1e-7", ""]
    frame = pl.DataFrame({"text": [*texts, None], "n": range(-len(texts), 1)})
    data = written(capfdbinary, frame, Form.CSV).decode()
    rows = list(csv.DictReader(io.StringIO(data, newline="")))
    guarded = [f"'{text}" for text in texts[:7]]
    assert [row["text"] for row in rows] == [*guarded, *texts[7:], ""]
    assert [row["n"] for row in rows] == [str(n) for n in range(-len(texts), 1)]


def test_table_is_short_and_harmless(capfd):
    write_frame(FRAME, Form.TABLE, ("candidate_id", "text", "rating"))
    out, err = capfd.readouterr()
    assert "cand-012345678 " in out
    assert "\\u{1b}" in out
    assert "\x1b" not in out
    assert "score" not in out
    assert "None" not in out
    assert err == "2 rows\n"
