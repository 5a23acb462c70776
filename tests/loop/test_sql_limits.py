"""SQL ends in time, and writes or refuses whatever type an answer has, without a fault."""

import json
import threading
from types import SimpleNamespace

import duckdb
import pytest
from asked import make_lake
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query import query_time, sql
from lpfloop.loop.lake.query.sql import SqlError, answer, query
from lpfloop.loop.library.read_only_run import open_folder_or_name

COLUMNS = duckdb.sql("select * from test_all_types()").columns
BEYOND = {"date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_tz"}
"""Their examples are infinity and the ends of DuckDB's calendar."""
TOO_LARGE = {"hugeint", "uhugeint"}
ALL = "select {} as x from test_all_types()"
LONG = "select count(*) from range(1000000000000000) t(i) where i % 7 = 3"
"""What is not stopped goes on for days."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sql") / "lake"
    make_lake(folder)
    return folder


def told(lake, *words):
    return CliRunner().invoke(app, ["sql", *words, "--lake", str(lake)])


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_every_type_is_written(lake, form) -> None:
    names = ", ".join(BEYOND | TOO_LARGE)
    done = told(lake, ALL.format(f"* exclude ({names})").replace(" as x", ""), "--format", form)
    assert done.exit_code == 0, done.stderr
    if form == "jsonl":
        first = json.loads(done.stdout.splitlines()[0])
        assert set(first) == set(COLUMNS) - BEYOND - TOO_LARGE
    assert len(done.stdout_bytes) > 1000


@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_that_no_format_has_is_refused_in_one_sentence(lake, column) -> None:
    done = told(lake, ALL.format(f'"{column}"'), "--format", "table")
    if column not in BEYOND | TOO_LARGE:
        assert done.exit_code == 0, done.stderr
        return
    assert done.exit_code == 2
    said = "read it as text" if column in BEYOND else "out of range"
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("column", sorted(BEYOND | TOO_LARGE))
def test_the_remedy_for_a_refused_value_works(lake, column) -> None:
    assert told(lake, ALL.format(f"{column}::varchar"), "--json").exit_code == 0


def test_times_within_the_calendar_stay_times(lake) -> None:
    dates = """select date '0001-01-01' a, date '9999-12-31' b, timestamp '9999-12-31 23:59:59.9' c,
        time '23:59:59' d, timestamp_ns '2262-04-11 00:00:00' e"""
    assert [str(kind).partition("(")[0] for kind in query(lake, dates).dtypes] == [
        "Date",
        "Date",
        "Datetime",
        "Time",
        "Datetime",
    ]


def test_the_settings_of_duckdb_can_be_read_and_hold_no_key(lake, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-1")
    monkeypatch.setenv("LPFLOOP_API_KEY", "planted-secret-2")
    settings = told(lake, "select * from duckdb_settings()", "--json")
    assert settings.exit_code == 0
    assert any(row["name"] == "memory_limit" for row in json.loads(settings.stdout))
    assert "planted-secret" not in settings.stdout
    assert query(lake, "select * from duckdb_secrets()").height == 0
    with pytest.raises(SqlError):
        query(lake, "select getenv('LPFLOOP_API_KEY')")


def test_a_query_without_end_is_stopped_with_the_remedy(lake) -> None:
    done = told(lake, LONG, "--timeout", "0.5")
    assert done.exit_code == 2
    assert "stopped after 0.5 s" in " ".join(done.stderr.split())
    assert "--timeout SECONDS" in " ".join(done.stderr.split())
    with pytest.raises(SqlError, match=r"stopped after 0\.5 s"):
        open_folder_or_name("a", lake).sql(LONG, timeout=0.5)


def test_an_answer_of_many_batches_is_stopped_too(lake) -> None:
    much = "select i, repeat('x', 1000) as t from range(1000000000000) t(i)"
    with (
        pytest.raises(SqlError, match=r"stopped after 0\.5 s"),
        answer(lake, much, timeout=0.5) as rows,
    ):
        for _ in rows.collect_batches():
            pass


class Clock:
    """A clock that stands still until it is told that time went by, for what asks and waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def event(self) -> threading.Event:
        """Return an event that is waited for by this clock."""
        clock = self

        class Event(threading.Event):
            def wait(self, timeout: float) -> bool:
                end = clock.now + timeout
                while clock.now < end and not super().wait(0.01):
                    pass
                return self.is_set()

        return Event()


def test_the_time_of_who_reads_the_answer_does_not_count(lake, monkeypatch) -> None:
    """Read without Polars, which computes ahead in threads of its own."""
    clock = Clock()
    monkeypatch.setattr(query_time, "time", clock)
    threads = SimpleNamespace(Event=clock.event, Thread=threading.Thread)
    monkeypatch.setattr(query_time, "threading", threads)
    monkeypatch.setattr(sql, "register_io_source", lambda scan, **_: scan)
    limits, limit = [], sql.TimeLimit
    monkeypatch.setattr(sql, "TimeLimit", lambda *told: limits.append(limit(*told)) or limits[-1])
    with answer(lake, "select i from range(50000) t(i)", timeout=1) as scan:
        read = 0
        for batch in scan(None, None, None, None):
            read += len(batch)
            clock.now += 1.5
    assert read == 50_000
    assert [(each.spent, each.told) for each in limits] == [(0.0, None)]


def test_no_limit_and_a_wrong_one(lake) -> None:
    assert told(lake, "select 1 as x", "--timeout", "0", "--json").exit_code == 0
    assert "must be a number of seconds" in told(lake, "select 1", "--timeout", "-1").stderr
