# pyright: basic
"""SQL over a lake: DuckDB on the committed rows of its runs, read-only.

Each table has a column `run`. DuckDB reads the Parquet files itself, and only what the query needs;
it has no access to anything else. A query sees one state of each run, which stays open meanwhile,
so that none of its files is removed.
"""

import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from ....stores.derived import DERIVED, derived_names, open_derived
from ....stores.far_rows import FarRows
from ....stores.installation import pip_install
from ....stores.lake import RunReader, run_names
from ....stores.schemas import LATER, SCHEMAS
from ....stores.views import RATED, RATINGS, journal_tables, when_asked
from .query_time import TimeLimit
from .runs import open_run
from .sql_types import cast, quoted, unwritable

if TYPE_CHECKING:
    import duckdb

BATCH = 8192
PRIVATE = {
    "python_enable_replacements": False,
    "allow_persistent_secrets": False,
    "memory_limit": "4GiB",
}
"""Names in a query are tables, never Python variables of this process; nor does it find the keys of
the user's own databases, or take a run's memory: beyond the limit, rows go to the disk."""
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

GAINED = {
    "string": "varchar",
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "list<item: string>": "varchar[]",
}
"""The SQL types of columns that tables have gained, by their Arrow types."""


class SqlError(ValueError):
    """A query that cannot be answered."""


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
    with ExitStack() as stack:
        readers = [open_run(lake, name) for name in runs or run_names(lake) or (None,)]
        for reader in readers:
            stack.callback(reader.close)
            stack.enter_context(reader.journal.snapshot())
        connection = stack.enter_context(_connection())
        _lock(connection, _make_tables(connection, readers, sql.lower()))
        yield _streamed(_asked(connection, sql), TimeLimit(connection.interrupt, timeout))


@contextmanager
def _connection() -> "Generator[duckdb.DuckDBPyConnection]":
    """Yield a connection to an empty database in memory; its errors become one sentence."""
    try:
        import duckdb
    except ImportError as error:
        raise SqlError(f"SQL needs DuckDB: {pip_install('duckdb')}") from error
    with tempfile.TemporaryDirectory(prefix="lpfloop-sql-") as spill:
        connection = duckdb.connect(config={**PRIVATE, "temp_directory": spill})
        try:
            yield connection
        except duckdb.Error as error:
            raise SqlError(_sentence(error)) from error
        finally:
            connection.close()


def _make_tables(
    connection: "duckdb.DuckDBPyConnection", readers: Sequence[RunReader], sql: str
) -> list[str]:
    """Create every table without reading it; return the files behind those that `sql` names.

    These are verified. Another file cannot be read: DuckDB asks Arrow for rows in a bucket, and
    Polars for those of all other tables, which asks the reader, if it ever comes to that.
    """
    behind: list[str] = []
    selects: dict[str, list[str]] = {}
    for reader in readers:
        for table, schema in SCHEMAS.items():
            named = table in sql or (table in RATED and "ratings" in sql)
            files = reader.files(table) if named else []
            behind += files
            if files:
                rows = _parquet(files, table)
            else:
                frame = reader.far_rows(table) if named else None
                if frame is None:
                    frame = _frame(schema, partial(reader.scan, table), named=named)
                rows = _registered(connection, frame)
            selects.setdefault(table, []).append(_of_run(reader, rows))
        for table, frame in _other_tables(reader, sql):
            rows = _registered(connection, frame)
            selects.setdefault(table, []).append(_of_run(reader, rows))
    connection.execute(f"create schema {DERIVED}")
    for table, parts in selects.items():
        connection.execute(f"create view {table} as {' union all by name '.join(parts)}")
    connection.execute(f"create view ratings as {RATINGS}")
    return behind


def _frame(schema: pa.Schema, scan: Callable[[], pl.LazyFrame], *, named: bool) -> pl.LazyFrame:
    """Return rows whose files are verified now, if the query names them, else at their use."""
    return scan() if named else when_asked(pl.Schema(schema), scan)


def _other_tables(reader: RunReader, sql: str) -> Iterator[tuple[str, pl.LazyFrame]]:
    """Yield a run's tables besides its committed rows: the journal's, and derived ones."""
    yield from journal_tables(reader.journal).items()
    for name in derived_names(reader.folder):
        derived = open_derived(reader.folder, name)
        for table in derived.tables:
            full = f"{name}.{table}"
            frame = _frame(SCHEMAS[table], partial(derived.scan, table), named=full in sql)
            yield f"{DERIVED}.{quoted(full)}", frame


def _of_run(reader: RunReader, rows: str) -> str:
    name = _literal(reader.folder.name)
    return f"select {name} as run, * from {rows}"  # noqa: S608 -- quoted, or our own


def _parquet(files: Sequence[str], table: str) -> str:
    columns = ", ".join(map(quoted, SCHEMAS[table].names))
    read = f"read_parquet({_literal(files)})"
    if gained := LATER.get(table):
        # Parts without a value in such a column are without the column.
        schema = SCHEMAS[table]
        none = ", ".join(
            f"null::{GAINED[str(schema.field(name).type)]} as {quoted(name)}" for name in gained
        )
        rows = f"read_parquet({_literal(files)}, union_by_name = true)"
        read = f"(select {none} where false union all by name select * from {rows})"  # noqa: S608
    return f"(select {columns} from {read})"  # noqa: S608 -- quoted, or our own


def _registered(connection: "duckdb.DuckDBPyConnection", frame: pl.LazyFrame | FarRows) -> str:
    """Return the name of rows in queries; only what a query needs is computed or fetched."""
    name = f"_{secrets.token_hex(8)}"
    connection.register(name, frame)
    return name


def _literal(value: str | Sequence[str]) -> str:
    """Return a text or a list of texts as an SQL literal."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "[" + ", ".join(_literal(item) for item in value) + "]"


def _lock(connection: "duckdb.DuckDBPyConnection", files: Sequence[str]) -> None:
    """Deny access to everything but these files."""
    connection.execute(f"set allowed_paths = {_literal(files)}")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _asked(connection: "duckdb.DuckDBPyConnection", sql: str) -> "duckdb.DuckDBPyRelation":
    """Return the answer, with unique column names and types that every format has."""
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SqlError("only one SELECT is allowed: the lake is read-only")
    relation = connection.sql(sql)
    names = _distinct(relation.columns)
    return relation.project(
        ", ".join(
            f"#{place}{cast(kind)} as {quoted(name)}"
            for place, (name, kind) in enumerate(zip(names, relation.types, strict=True), 1)
        )
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, repeated ones with a number after them."""
    taken: dict[str, None] = {}
    for name in names:
        tries = (f"{name}_{number}" if number else name for number in count())
        taken[next(tried for tried in tries if tried not in taken)] = None
    return list(taken)


def _streamed(relation: "duckdb.DuckDBPyRelation", limit_s: TimeLimit) -> pl.LazyFrame:
    """Return an answer's rows as a lazy frame that is computed batch by batch."""
    import duckdb

    schema = pl.DataFrame(relation.limit(0).to_arrow_table()).schema

    def scan(
        columns: list[str] | None, wanted: pl.Expr | None, limit: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        asked = relation if limit is None else relation.limit(limit)
        try:
            with limit_s:
                batches = asked.to_arrow_reader(BATCH)
            while True:
                with limit_s:
                    batch = next(batches, None)
                if batch is None:
                    return
                frame = _written(pl.DataFrame(batch))
                frame = frame if wanted is None else frame.filter(wanted)
                yield frame.select(columns or pl.all())
        except (OSError, duckdb.Error) as error:
            raise SqlError(limit_s.told or _sentence(error)) from error

    return register_io_source(scan, schema=schema)


def _written(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows, all of which every format can hold.

    Raises:
        SqlError: if there is a time that others than databases do not have.
    """
    column = unwritable(frame)
    if column is not None:
        raise SqlError(
            f"the column {column!r} has a time that other formats lack (infinity, or not in the "
            f"years 1 to 9999); read it as text: {quoted(column)}::varchar"
        )
    return frame


def _sentence(error: Exception) -> str:
    """Return what DuckDB says, without the query that it repeats, on one line."""
    told = str(error).partition("\n\nLINE ")[0]
    return " ".join(told.split())
