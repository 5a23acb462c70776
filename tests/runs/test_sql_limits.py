"""SQL queries end in time, and never show a key."""

import json

import pytest
from lakes import asked_lake
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.sql import SqlError, query
from lpfloop.loop.library.read_only_run import open_folder_or_name

LONG = "select count(*) from range(1000000000000000) t(i) where i % 7 = 3"
"""Without a limit, this query would run for days."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sql") / "lake"
    asked_lake(folder)
    return folder


def told(lake, *words):
    return CliRunner().invoke(app, ["sql", *words, "--lake", str(lake)])


def test_settings_hold_no_key(lake, environ) -> None:
    environ["AWS_SECRET_ACCESS_KEY"] = "planted-secret-1"
    environ["LPFLOOP_API_KEY"] = "planted-secret-2"
    settings = told(lake, "select * from duckdb_settings()", "--json")
    assert settings.exit_code == 0
    assert any(row["name"] == "memory_limit" for row in json.loads(settings.stdout))
    assert "planted-secret" not in settings.stdout
    assert query(lake, "select * from duckdb_secrets()").height == 0
    with pytest.raises(SqlError):
        query(lake, "select getenv('LPFLOOP_API_KEY')")


def test_endless_query_is_stopped(lake) -> None:
    done = told(lake, LONG, "--timeout", "0.5")
    assert done.exit_code == 2
    assert "--timeout SECONDS" in " ".join(done.stderr.split())
    with pytest.raises(SqlError, match="stopped"):
        open_folder_or_name("a", lake).sql(LONG, timeout=0.5)


def test_pivot_is_a_query(lake, subtests) -> None:
    rows = "(select run, task from prompts)"
    pivot = f"pivot {rows} on run using count(*)"
    for sql in (
        pivot,
        f"{pivot};",
        f"{pivot} -- of each task",
        f"select * from ({pivot})",  # noqa: S608
        f"with counted as ({pivot}) select * from counted",  # noqa: S608
        f"pivot {rows} on run in ('a', 'b') using count(*)",
    ):
        with subtests.test(sql):
            assert {"task", "a", "b"} <= set(query(lake, sql).columns)
    for sql in (
        f"create table mine as ({pivot})",
        f"copy ({pivot}) to 'mine.csv'",
        f"{pivot}; drop view prompts",
        "select 1; select 2",
        "create table mine as select 1",
    ):
        with subtests.test(sql), pytest.raises(SqlError, match="only one SELECT"):
            query(lake, sql)
    with pytest.raises(SqlError, match="stopped"):
        query(lake, f"pivot ({LONG.replace('count(*)', 'i')}) on i using count(*)", timeout=0.5)
