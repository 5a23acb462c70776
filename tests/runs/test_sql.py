"""SQL over a lake: every table, read-only, over all runs; and DuckDB's errors in one sentence."""

import pytest
from lakes import PROMPTS, SAMPLES, asked_lake
from rows import CANDIDATE

from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.query.sql import COLUMNS, SqlError, answer, query
from lpfloop.stores.derived import deriving
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate
from lpfloop.stores.schemas import SCHEMAS, TABLES

ROWS = PROMPTS * SAMPLES * 2


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sql") / "lake"
    asked_lake(folder)
    return folder


def ask(lake, sql, *runs):
    return query(lake, sql, runs).rows()


def test_columns_of_every_table(lake):
    found = query(lake, COLUMNS)
    for table in TABLES.values():
        columns = found.filter(found["table"] == table)["column"].to_list()
        assert columns == ["run", *SCHEMAS[table].names]
    assert {"ratings", "units", "events"} <= set(found["table"])


def test_runs_asked(lake):
    counted = "select run, count(*) from candidates group by run order by run"
    assert ask(lake, counted) == [("a", ROWS), ("b", ROWS)]
    assert ask(lake, counted, "b") == [("b", ROWS)]


def test_derived_tables(tmp_path):
    asked_lake(tmp_path)
    folder = run_folder(tmp_path, "a")
    run = open_run(tmp_path, "a")
    with deriving(folder) as draft:
        draft.add("pairs", run.scan("pairs").head(3).collect().to_arrow().cast(SCHEMAS["pairs"]))
        draft.publish("strict-2", {})
    run.close()
    assert ask(tmp_path, 'select run, count(*) from derived."strict-2.pairs" group by run') == [
        ("a", 3)
    ]


def test_bad_query(lake, subtests):
    for sql, told in [
        ("selec 1", "selec"),
        ("select * from critiks", "critiques"),
        ("select critik_id from critiques", '"critique_id"'),
        ("select i, if(i > 9000, error('late'), i) from range(20000) t(i)", "late"),
    ]:
        with subtests.test(sql=sql, told=told):
            with pytest.raises(SqlError) as refused:
                query(lake, sql)
            assert told in str(refused.value)
            assert "\n" not in str(refused.value)


def test_query_sees_one_state(tmp_path):
    asked_lake(tmp_path)
    sql = """select (select count(*) from candidates) as rows,
        (select sum(rows) from units where stage like 'candidate%') as told"""
    with answer(tmp_path, sql, ["a"]) as frame:
        writer = RunWriter(Journal(run_folder(tmp_path, "a")))
        writer.journal.plan(3, "candidates", "x", lambda: ["more"])
        writer.commit("more", {Candidate: [CANDIDATE]}, {})
        writer.close()
        assert frame.collect().row(0) == (ROWS, ROWS)
    assert query(tmp_path, sql, ["a"]).row(0) == (ROWS + 1, ROWS + 1)


def test_only_a_select(lake, tmp_path, subtests):
    for sql in [
        "copy candidates to '{there}'",
        "delete from candidates",
        "attach '{there}' as x",
        "install httpfs",
        "select 1; copy candidates to '{there}'",
        "",
    ]:
        with subtests.test(sql=sql):
            there = tmp_path / "there"
            with pytest.raises(SqlError, match="one SELECT"):
                query(lake, sql.format(there=there))
            assert not there.exists()


def test_files_out_of_reach(lake, subtests):
    for sql in [
        "select * from read_csv('/etc/passwd')",
        "select * from read_parquet('{part}/../../../../other.parquet')",
        "select * from read_parquet('https://example.org/x.parquet')",
    ]:
        with subtests.test(sql=sql):
            run = open_run(lake, "a")
            part = run.table_rows("prompts").ranges()[0].files[0]
            run.close()
            with pytest.raises(SqlError):
                query(lake, sql.format(part=part))
