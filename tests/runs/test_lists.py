"""The commands that list a run's rows: every format, every filter, and unknown words."""

import json

import polars as pl
import pytest
from lakes import PROMPTS, SAMPLES, asked_lake
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists") / "lake"
    asked_lake(folder)
    return folder


def invoke(lake, *arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--lake", str(lake)])


def test_forms_of_a_list(lake):
    lines = invoke(lake, "critiques", "a", "--format", "jsonl").stdout.splitlines()
    document = json.loads(invoke(lake, "critiques", "a", "--json").stdout)
    parquet = pl.read_parquet(invoke(lake, "critiques", "a", "--format", "parquet").stdout_bytes)
    csv = pl.read_csv(invoke(lake, "critiques", "a", "--format", "csv").stdout_bytes)
    assert len(lines) == len(document) == parquet.height == csv.height > 0
    table = invoke(lake, "critiques", "a", "--format", "table", "--limit", "2")
    assert table.exit_code == 0
    assert "\x1b" not in table.stdout


def test_no_rows_and_unknown_words(lake):
    none = invoke(lake, "critiques", "a", "--rating", "-1", "--aspect", "Completeness")
    assert (none.exit_code, none.stdout) == (0, "")
    slip = invoke(lake, "critiques", "a", "--task", "maths")
    assert (slip.exit_code, slip.stdout) == (Exit.BAD_INPUT, "")
    assert "maths" in slip.stderr
    assert invoke(lake, "pairs", "a", "--derived", "x").exit_code == Exit.BAD_INPUT
    assert invoke(lake, "pairs", "a", "--json", "--format", "csv").exit_code == Exit.BAD_INPUT


def test_sql_command(lake):
    found = invoke(lake, "sql", "select count(*) as n from critiques", "a", "--json")
    assert json.loads(found.stdout) == [{"n": PROMPTS * SAMPLES * 2}]
    tables = {json.loads(line)["table"] for line in invoke(lake, "sql").stdout.splitlines()}
    assert {"prompts", "ratings", "units", "events"} <= tables
    bad = invoke(lake, "sql", "select * from critiks")
    assert (bad.exit_code, bad.stderr.count("\n")) == (Exit.BAD_INPUT, 1)
    assert invoke(lake, "sql", "select 1", "x").exit_code == Exit.BAD_INPUT
