# pyright: basic
"""SQL over a lake: DuckDB on the committed rows of its runs, read-only.

Each table has a column `run`. DuckDB reads the Parquet files itself, and only those that the query
needs; it can access nothing else. A query sees one state of each run. Runs are opened one after the
other, because a lake can have more runs than a process can have open files. The runs that were
written last stay open until the query is answered: a process can still be at work on them, and it
removes no file of a run that has readers.
"""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ....stores.derived import DERIVED, derived_names, open_derived
from ....stores.lake import RunReader, run_names
from ....stores.schemas import SCHEMAS
from ....stores.views import JOURNAL_TABLES, VIEWS, journal_table, lazy_rows
from .duckdb_rows import (
    PRIVATE,
    SqlError,
    TimeLimit,
    cast,
    literal,
    quote_name,
    register_frame,
    select_rows,
    sentence,
    stream_rows,
)
from .runs import open_run

if TYPE_CHECKING:
    import duckdb

KEPT_OPEN = 16
"""Runs that stay open, of four files each."""
TIMEOUT = 60.0
"""The seconds that a query may compute, unless another number is given."""
COLUMNS = """
select case when table_schema = 'main' then table_name
    else table_schema || '."' || table_name || '"' end as "table",
    column_name as "column", data_type as type
from information_schema.columns where table_catalog = 'memory'
order by table_schema desc, table_name, ordinal_position
"""
"""The query that lists tables and columns."""


def query(
    lake: Path, sql: str, runs: Sequence[str] = (), *, timeout: float = TIMEOUT
) -> pl.DataFrame:
    """Answer a query over some runs, by default all of the lake.

    Raises:
        SqlError: with DuckDB's message, or after `timeout` seconds of computing (0: no limit).
    """
    with answer(lake, sql, runs, timeout=timeout) as frame:
        return frame.collect()


@contextmanager
def answer(
    lake: Path, sql: str, runs: Sequence[str] = (), *, timeout: float = TIMEOUT
) -> Generator[pl.LazyFrame]:
    """Answer a query with a lazy frame, computed while this is open, batch by batch.

    Raises:
        SqlError: with DuckDB's message, or after `timeout` seconds of computing (0: no limit).
    """
    if timeout < 0:
        raise SqlError(f"--timeout {timeout:g}: must be a number of seconds, or 0 for no limit")
    names = runs or run_names(lake) or (None,)
    with ExitStack() as stack:
        connection = stack.enter_context(_connection())
        tables = _Tables(connection, sql.lower())
        for place, name in enumerate(names, 1):
            with ExitStack() as opened:
                reader = opened.enter_context(closing(open_run(lake, name)))
                opened.enter_context(reader.journal.snapshot())
                tables.add(reader)
                if place > len(names) - KEPT_OPEN:
                    stack.push(opened.pop_all())
        _lock(connection, tables.create())
        limit = TimeLimit(connection.interrupt, timeout)
        relation = _run_query(connection, sql, limit)
        schema = pl.DataFrame(relation.limit(0).to_arrow_table()).schema
        yield stream_rows(lambda: nullcontext(relation), schema, limit)


@contextmanager
def _connection() -> "Generator[duckdb.DuckDBPyConnection]":
    """Yield a connection to an empty database in memory; its errors become one sentence."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="lpfloop-sql-") as spill:
        connection = duckdb.connect(config={**PRIVATE, "temp_directory": spill})
        # the bar is printed to stdout, among the rows
        connection.execute("set enable_progress_bar = false")
        try:
            yield connection
        except duckdb.Error as error:
            raise SqlError(sentence(error)) from error
        finally:
            connection.close()


class _Tables:
    """The tables of a query's runs; only the tables that `sql` names are read.

    Their files are verified. Another file cannot be read: Polars gives DuckDB the rows in a bucket,
    and of all other tables, which opens the runs again if it ever comes to that.
    """

    def __init__(self, connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
        self._connection = connection
        self._sql = sql
        self._files: list[str] = []
        self._selects: dict[str, list[str]] = {}
        self._folders: list[Path] = []

    def add(self, reader: RunReader) -> None:
        """Add the rows of a run, which can be closed then."""
        self._folders.append(reader.folder)
        for table in filter(self._names, SCHEMAS):
            self._add(reader, table, self._rows(reader, table))
        for table in filter(self._names, JOURNAL_TABLES):
            frame = journal_table(reader.journal, table).lazy()
            self._add(reader, table, register_frame(self._connection, frame))
        for name in derived_names(reader.folder):
            derived = open_derived(reader.folder, name)
            for table in derived.tables:
                full, scan = f"{name}.{table}", partial(derived.scan, table)
                rows = scan() if full in self._sql else lazy_rows(pl.Schema(SCHEMAS[table]), scan)
                place = f"{DERIVED}.{quote_name(full)}"
                self._add(reader, place, register_frame(self._connection, rows))

    def create(self) -> list[str]:
        """Create every table without reading it; return the files of the tables used by `sql`."""
        self._connection.execute(f"create schema {DERIVED}")
        for table, schema in (*SCHEMAS.items(), *JOURNAL_TABLES.items()):
            if not self._names(table):
                run = {"run": pl.String(), **pl.Schema(schema)}
                rows = lazy_rows(run, partial(_rows_of_runs, tuple(self._folders), table))
                name = register_frame(self._connection, rows)
                self._selects[table] = [f"select * from {name}"]  # noqa: S608 -- our own
        for table, parts in self._selects.items():
            self._connection.execute(f"create view {table} as {' union all by name '.join(parts)}")
        for name, view in VIEWS.items():
            self._connection.execute(f"create view {name} as {view}")
        return self._files

    def _names(self, table: str) -> bool:
        """Whether the query names a table, or a view of it."""
        return table in self._sql or any(
            name in self._sql and table in view for name, view in VIEWS.items()
        )

    def _add(self, reader: RunReader, table: str, rows: str) -> None:
        name = literal(reader.folder.name)
        select = f"select {name} as run, * from {rows}"  # noqa: S608 -- quoted, or our own
        self._selects.setdefault(table, []).append(select)

    def _rows(self, reader: RunReader, table: str) -> str:
        """Return the rows of a run's table as SQL."""
        ranges = reader.table_rows(table).ranges()
        self._files += [file for rows in ranges for file in rows.files]
        return f"({select_rows(self._connection, ranges, SCHEMAS[table].names)})"


def _rows_of_runs(folders: Sequence[Path], table: str) -> pl.LazyFrame:
    """Return the rows of a table in several runs, which are opened one after the other."""

    def rows(folder: Path) -> pl.DataFrame:
        with closing(RunReader(folder)) as reader:
            if table in JOURNAL_TABLES:
                found = journal_table(reader.journal, table)
            else:
                found = reader.scan(table).collect()
            return found.select(pl.lit(folder.name).alias("run"), pl.all())

    return pl.concat([rows(folder) for folder in folders]).lazy()


def _lock(connection: "duckdb.DuckDBPyConnection", files: Sequence[str]) -> None:
    """Deny access to everything but these files."""
    connection.execute(f"set allowed_paths = {literal(files)}")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _run_query(
    connection: "duckdb.DuckDBPyConnection", sql: str, limit_s: TimeLimit
) -> "duckdb.DuckDBPyRelation":
    """Return the answer, with unique column names and types that every format has."""
    import duckdb

    if not _is_query(connection, sql):
        raise SqlError("only one SELECT is allowed: the lake is read-only")
    try:
        with limit_s.counting():  # a PIVOT looks for its columns now
            relation = connection.sql(sql)
    except duckdb.Error as error:
        raise SqlError(limit_s.message or sentence(error)) from error
    names = _distinct(relation.columns)
    return relation.project(
        ", ".join(
            f"#{place}{cast(kind)} as {quote_name(name)}"
            for place, (name, kind) in enumerate(zip(names, relation.types, strict=True), 1)
        )
    )


def _is_query(connection: "duckdb.DuckDBPyConnection", sql: str) -> bool:
    """Return whether a text is one SELECT, or a PIVOT whose columns come from the rows.

    DuckDB parses such a PIVOT as several statements, also within one that writes. Only a query can
    be used as a table.
    """
    import duckdb

    select, several = duckdb.StatementType.SELECT, duckdb.StatementType.MULTI
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != several:
        return len(statements) == 1 and statements[0].type == select
    inside = sql.rstrip().rstrip(";")
    try:
        return len(connection.extract_statements(f"select * from ({inside}\n)")) == 1  # noqa: S608
    except duckdb.ParserException:
        return False


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, repeated ones with a number after them."""
    taken: dict[str, None] = {}
    for name in names:
        tries = (f"{name}_{number}" if number else name for number in count())
        taken[next(tried for tried in tries if tried not in taken)] = None
    return list(taken)
