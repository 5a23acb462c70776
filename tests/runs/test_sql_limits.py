"""SQL ends in time and shows no key."""

import json

import pytest
from lakes import asked_lake
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.sql import SqlError, query
from lpfloop.loop.library.read_only_run import open_folder_or_name

LONG = "select count(*) from range(1000000000000000) t(i) where i % 7 = 3"
"""What is not stopped goes on for days."""


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
