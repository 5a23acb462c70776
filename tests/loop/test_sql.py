"""SQL over a lake: every table, read-only, over all runs; and DuckDB's errors in one sentence."""

import sys

import duckdb
import pytest
from asked import PROMPTS, SAMPLES, make_lake

from examples import CANDIDATE
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
    make_lake(folder)
    return folder


def ask(lake, sql, *runs):
    return query(lake, sql, runs).rows()


def test_every_table_has_the_columns_of_its_noun_and_its_run(lake):
    found = query(lake, COLUMNS)
    for table in TABLES.values():
        columns = found.filter(found["table"] == table)["column"].to_list()
        assert columns == ["run", *SCHEMAS[table].names]
    assert {"ratings", "units", "events"} <= set(found["table"])


def test_all_runs_are_asked_unless_some_are_named(lake):
    counted = "select run, count(*) from candidates group by run order by run"
    assert ask(lake, counted) == [("a", ROWS), ("b", ROWS)]
    assert ask(lake, counted, "b") == [("b", ROWS)]


def test_rows_are_those_of_the_lazy_frames(lake):
    run = open_run(lake, "a")
    for table in ("prompts", "candidates", "critiques", "pairs", "evaluations"):
        found = query(lake, f"from {table}", ["a"]).drop("run")
        assert found.equals(run.scan(table).collect())
    run.close()


def test_ratings_have_one_row_an_aspect_with_its_task(lake):
    sql = """select task, aspect, avg(rating) as mean, sum(rating) as total, count(rating) as n
        from ratings group by all order by all"""
    assert ask(lake, sql, "a") == [
        ("fact", "Completeness", 1.0, 18, 18),
        ("fact", "Factuality", 0.0, 0, 18),
        ("math", "Logical Correctness", 0.0, 0, 18),
    ]


def test_a_rating_knows_its_critique_candidate_and_comment(lake):
    sql = "select * from ratings where candidate_id = 'cand-prompt-1-2-0' and run = 'a'"
    rows = query(lake, sql).to_dicts()
    assert {row["aspect"]: (row["rating"], row["comment"]) for row in rows} == {
        "Factuality": (1, "comment 0"),
        "Completeness": (1, ""),
    }
    assert {row["critique_id"] for row in rows} == {"crit-prompt-1-2-0"}
    assert {(row["task"], row["iteration"], row["critic"]) for row in rows} == {("fact", 2, "m0")}


def test_units_and_events_come_from_the_journal(lake):
    sql = """select stage, iteration, chunk, done, rows, telemetry->>'tokens' as tokens
        from units where key = '1-candidate'"""
    assert ask(lake, sql, "a") == [("candidate", 1, 0, True, PROMPTS * SAMPLES, "7.0")]
    ((at, detail),) = ask(lake, "select time, detail from events where kind = 'end'", "a")
    assert at.year > 2000
    assert "test" in detail
    both = "select count(*) from units x join units y using (run, key)"
    assert ask(lake, both) == ask(lake, "select count(*) from units")


def test_derived_tables_have_a_schema_of_their_own(tmp_path):
    make_lake(tmp_path)
    folder = run_folder(tmp_path, "a")
    run = open_run(tmp_path, "a")
    with deriving(folder) as draft:
        draft.add("pairs", run.scan("pairs").head(3).collect().to_arrow().cast(SCHEMAS["pairs"]))
        draft.publish("strict-2", {})
    run.close()
    assert ask(tmp_path, 'select run, count(*) from derived."strict-2.pairs" group by run') == [
        ("a", 3)
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "copy candidates to '{there}'",
        "create table x as select 1",
        "create view x as select 1",
        "drop view candidates",
        "insert into candidates select * from candidates",
        "delete from candidates",
        "attach '{there}' as x",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma disable_verification",
        "export database '{there}'",
        "call pragma_version()",
        "explain analyze select 1",
        "begin",
        "select 1; copy candidates to '{there}'",
        "",
        "-- nothing",
    ],
)
def test_what_is_no_select_is_refused(lake, tmp_path, sql):
    there = tmp_path / "there"
    with pytest.raises(SqlError, match="one SELECT"):
        query(lake, sql.format(there=there))
    assert not there.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/etc/*')",
        "select * from read_parquet('{part}/../../../../other.parquet')",
        "select * from read_parquet('https://example.org/x.parquet')",
        "select * from sqlite_scan('{lake}/runs/a/journal.sqlite', 'meta')",
        "select * from parquet_metadata('/etc/passwd')",
    ],
)
def test_files_beyond_the_rows_are_out_of_reach(lake, sql):
    run = open_run(lake, "a")
    part = run.files("prompts")[0]
    run.close()
    with pytest.raises(SqlError) as refused:
        query(lake, sql.format(part=part, lake=lake))
    assert "\n" not in str(refused.value)


def test_variables_of_the_program_are_no_tables(lake):
    for name in ("connection", "statements", "readers", "sql"):
        with pytest.raises(SqlError, match="does not exist"):
            query(lake, f"from {name}")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selec 1", 'syntax error at or near "selec"'),
        ("select * from critiks", 'Did you mean "critiques"'),
        ("select critik_id from critiques", '"critique_id"'),
        ("select 'a'::int", "Could not convert string 'a'"),
        ("select i, if(i > 9000, error('late'), i) from range(20000) t(i)", "late"),
    ],
)
def test_a_bad_query_is_told_in_duckdbs_words(lake, sql, told):
    with pytest.raises(SqlError) as refused:
        query(lake, sql)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_types_that_other_formats_lack_become_ones_they_have(lake):
    sql = """select sum(i) as s, 1.5 as d, interval 1 day as i, null as n, 'x'::bit as b
        from range(3) t(i)"""
    with pytest.raises(SqlError):
        query(lake, sql)
    found = query(lake, sql.replace(", 'x'::bit as b", ""))
    assert found.row(0) == (3, 1.5, "1 day", None)


def test_columns_of_one_name_are_told_apart(lake):
    found = query(lake, "select a.run, b.run, 1 as run_1 from prompts a, prompts b limit 1")
    assert found.columns == ["run", "run_1", "run_1_1"]


def test_an_order_holds_over_many_batches(lake):
    found = query(lake, "select i from range(50000) t(i) order by i desc")["i"].to_list()
    assert found == sorted(found, reverse=True)


def test_an_answer_comes_batch_by_batch(lake):
    sql = "select i, repeat('x', 100) as t from range(1000000000) t(i)"
    with answer(lake, sql) as frame:
        assert next(iter(frame.collect_batches(chunk_size=10)))["i"].to_list()[:3] == [0, 1, 2]


def test_only_the_columns_that_are_asked_for_are_read(lake, monkeypatch):
    plans = []

    class Watched:
        def __init__(self, connection):
            self.connection = connection

        def __getattr__(self, name):
            return getattr(self.connection, name)

        def sql(self, text):
            plans.append(self.connection.sql(text).explain())
            return self.connection.sql(text)

    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda **options: Watched(connect(**options)))
    query(lake, "select task, aspect, avg(rating) from ratings group by all")
    (plan,) = plans
    assert "aspects" in plan
    assert "text" not in plan
    assert "messages" not in plan


def test_without_duckdb_one_sentence_says_what_to_install(lake, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SqlError, match="pip install 'duckdb>=2'"):
        query(lake, "select 1")


def test_a_query_sees_one_state_of_a_run_that_goes_on(tmp_path):
    make_lake(tmp_path)
    sql = """select (select count(*) from candidates) as rows,
        (select sum(rows) from units where stage like 'candidate%') as told"""
    with answer(tmp_path, sql, ["a"]) as frame:
        writer = RunWriter(Journal(run_folder(tmp_path, "a")))
        writer.journal.plan(3, "candidates", "x", lambda: ["more"])
        writer.commit("more", {Candidate: [CANDIDATE]}, {})
        writer.close()
        assert frame.collect().row(0) == (ROWS, ROWS)
    assert query(tmp_path, sql, ["a"]).row(0) == (ROWS + 1, ROWS + 1)
