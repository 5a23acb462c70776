"""lpfloop skips unreadable rows if the user allows it, and counts them."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.lake.query.runs import open_run

GOOD = '{"prompt": "a", "response": "x", "note": 1}\n'
LONG = '{"prompt": "' + "x" * (10 * 2**20) + '"}\n'
BAD = {
    "broken\n": "not valid JSON",
    '{"prompt": 3}\n': "'prompt' must be a text, but is a number",
    LONG: "longer than 10485760 bytes",
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def filter_counts(lake, name):
    run = open_run(lake, name)
    try:
        rows = run.scan("filter_counts").select("outcome", "count", "examples").collect().rows()
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


def test_bad_rows_left_out(file, tmp_path):
    path, lake = file(GOOD + "".join(BAD) + GOOD.replace("a", "b")), tmp_path / "lake"
    arguments = ("import", path, "--run", "x", "--lake", lake)
    refused = invoke(*arguments)
    assert refused.exit_code == Exit.BAD_INPUT
    assert "line 2" in refused.stderr
    assert "--skip-bad" in refused.stderr
    assert not lake.exists()
    told = invoke(*arguments, "--skip-bad", "--bad-share", 0.7)
    assert told.exit_code == 0, told.stderr
    found = filter_counts(lake, "x")
    assert sum(count for outcome, count, _ in found if outcome == "kept") == 2
    left_out = [row for row in found if row[0] == "unreadable"]
    assert sum(count for _, count, _ in left_out) == len(BAD)
    said = sorted(example for _, _, examples in left_out for example in examples)
    for number, (example, why) in enumerate(zip(said, BAD.values(), strict=True), start=2):
        assert example.startswith(f"rows.jsonl, line {number}: {why}")


def test_skipped_row_leaves_no_trace(file, tmp_path):
    """Its prompt is new in another row."""
    rows = [
        {"prompt_id": "1", "prompt": "a", "response": "x"},
        # Its first answer is good, the second has no text.
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
