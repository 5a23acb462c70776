# pyright: basic
"""DuckDB on the committed rows of runs: rows of a table as SQL, and answers as lazy frames.

Polars ends the whole process if its writers meet a type that JSON or CSV lacks, so columns of types
that not every output format can hold become text.
"""

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from ....stores.stage_files import RowRange

if TYPE_CHECKING:
    import duckdb

WHOLE = frozenset(
    ("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint")
)
KEPT = WHOLE | {"boolean", "float", "double", "varchar", "uuid"}
MOMENTS = frozenset(
    ("date", "time", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns")
) | {"timestamp with time zone"}
"""Kept as a column's type; within lists and objects they are text."""
NUMBERS = {"hugeint": "bigint", "uhugeint": "bigint", "decimal": "double"}
TEXT = "varchar"
DAY = 24 * 60 * 60
FIRST, LAST = -719_162 * DAY, 2_932_897 * DAY
"""The years 1 to 9999, in seconds from 1970; `LAST` is exclusive."""
PARTS = {"ms": 10**3, "us": 10**6}
"""64 bits of nanoseconds end within these years."""


def cast(kind: Any) -> str:
    """Return the cast of a column of DuckDB's type `kind`; empty if it needs none."""
    own = kind.id
    if own in KEPT or own in MOMENTS or own == "blob":
        return "::varchar" if own == "uuid" else ""
    return f"::{_inner(kind)}"


def _inner(kind: Any) -> str:
    """Return the type that a value becomes, in SQL."""
    own = kind.id
    if own in NUMBERS:
        return NUMBERS[own]
    if own in KEPT and own != "uuid":
        return str(kind)
    if own in ("list", "array"):
        return f"{_inner(kind.children[0][1])}[]"
    if own == "struct" and kind.children:
        fields = (f"{quote_name(name)} {_inner(of)}" for name, of in kind.children)
        return f"struct({', '.join(fields)})"
    return TEXT


def quote_name(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def unwritable(frame: pl.DataFrame) -> str | None:
    """Return the first column with a moment that calendars outside databases do not have."""
    for name, kind in frame.schema.items():
        if kind == pl.Date:
            bounds = (FIRST // DAY, LAST // DAY)
        elif isinstance(kind, pl.Datetime) and kind.time_unit != "ns":
            bounds = (FIRST * PARTS[kind.time_unit], LAST * PARTS[kind.time_unit])
        elif kind == pl.Time:
            bounds = (0, DAY * 10**9)
        else:
            continue
        known = frame[name].to_physical().drop_nulls()
        if known.len() and not known.is_between(*bounds, closed="left").all():
            return name
    return None


PLACE = "_place"
"""The column with the place of a row in its table."""
BATCH = 8192
PRIVATE = {
    "python_enable_replacements": False,
    "allow_persistent_secrets": False,
    "memory_limit": "4GiB",
}
"""Names in a query are tables, never Python variables of this process; nor does it find the keys of
the user's own databases, or take a run's memory: beyond the limit, rows go to the disk."""
_CONNECTING = threading.Lock()
AGAIN_S = 0.2
"""An interruption is lost if it comes before the query starts, so it is repeated."""


@dataclass(slots=True)
class TimeLimit:
    """Interrupts queries once `seconds` of computing have been spent in all; 0 disables the limit.

    The time of the reader of the rows does not count.
    """

    interrupt: Callable[[], None]
    seconds: float
    spent: float = 0.0
    is_over: bool = False

    @property
    def message(self) -> str | None:
        """The message for an interrupted query; None if something else interrupted it."""
        if not self.is_over:
            return None
        return (
            f"the query was stopped after {self.seconds:g} s: ask for less, or give it longer "
            "with --timeout SECONDS (0: no limit; `timeout=` in Python)"
        )

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count the time until the block ends, and interrupt the query if there is none left."""
        began, ended = time.monotonic(), threading.Event()
        if self.seconds:
            threading.Thread(target=self._watch, args=(ended,), daemon=True).start()
        try:
            yield
        finally:
            self.spent += time.monotonic() - began
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        wait = max(self.seconds - self.spent, 0.0)
        while not ended.wait(wait):
            self.is_over, wait = True, AGAIN_S
            self.interrupt()


class SqlError(ValueError):
    """A query that cannot be answered."""

    code = "LPF-206"


def cursor(*, joins_in_order: bool = False) -> "duckdb.DuckDBPyConnection":
    """Return a connection to a database in memory, for queries of lpfloop itself.

    With `joins_in_order`, the rows of a join come in the order of its left side, and DuckDB uses
    one thread: several threads would mix them.
    """
    with _CONNECTING:
        return _database(joins_in_order=joins_in_order).cursor()


@cache  # Connecting takes longer than most queries.
def _database(*, joins_in_order: bool) -> "duckdb.DuckDBPyConnection":
    import duckdb

    spill = Path(tempfile.gettempdir()) / f"lpfloop-sql-{os.getpid()}"
    connection = duckdb.connect(config={**PRIVATE, "temp_directory": str(spill)})
    # the bar is printed to stdout, among the rows
    connection.execute("set enable_progress_bar = false")
    connection.execute("set enable_external_file_cache = false")  # it would fill the memory
    if joins_in_order:
        connection.execute("set threads = 1")
        # The left side stays the left side.
        connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    return connection


def select_rows(
    connection: "duckdb.DuckDBPyConnection", ranges: Sequence[RowRange], columns: Sequence[str]
) -> str:
    """Return the SELECT of columns of a table's rows; `PLACE` may be one of them.

    Rows that are in no local file are registered with the connection.
    """
    return " union all ".join(_select(connection, rows, columns) for rows in ranges)


def _select(connection: "duckdb.DuckDBPyConnection", rows: RowRange, columns: Sequence[str]) -> str:
    place, source, where = f"{rows.first} + row_number() over () - 1", "", ""
    if rows.files:
        source = f"read_parquet({literal(rows.files)})"
        if rows.live is None:
            firsts = [rows.first + sum(rows.counts[:n]) for n in range(len(rows.counts))]
            place = f"{firsts}[file_index::bigint + 1] + file_row_number"
        else:
            where = f" where _chunk in ({', '.join(map(str, sorted(rows.live)))})"
    else:
        source = register_frame(connection, rows.frame)
    selected = [f"{place} as {PLACE}" if name == PLACE else quote_name(name) for name in columns]
    return f"select {', '.join(selected)} from {source}{where}"


def register_frame(connection: "duckdb.DuckDBPyConnection", frame: object) -> str:
    """Register a frame, of which queries compute only the rows that they need; return its name."""
    name = f"_{secrets.token_hex(8)}"
    connection.register(name, frame)
    return name


def literal(value: str | float | Sequence[str]) -> str:
    """Return a text, a number, a truth value or a list of texts in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return f"'{value}'::double"
    if isinstance(value, int):
        return str(value)
    return "[" + ", ".join(literal(item) for item in value) + "]"


def among(column: str, values: Sequence[str]) -> str:
    """Return the condition that a column has one of some values.

    It is written out: DuckDB skips the row groups that cannot have any of them.
    """
    return f"{column} in ({', '.join(map(literal, values))})" if values else "false"


def stream_rows(
    opened: "Callable[[], AbstractContextManager[duckdb.DuckDBPyRelation]]",
    schema: Mapping[str, Any],
    limit_s: TimeLimit | None = None,
) -> pl.LazyFrame:
    """Return an answer's rows as a lazy frame that is computed batch by batch."""
    import duckdb

    timed = nullcontext if limit_s is None else limit_s.counting

    def scan(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        try:
            with opened() as relation:
                query = relation if limit is None else relation.limit(limit)
                if columns and predicate is None:
                    query = query.project(", ".join(map(quote_name, columns)))
                with timed():
                    batches = query.to_arrow_reader(BATCH)
                while True:
                    with timed():
                        batch = next(batches, None)
                    if batch is None:
                        return
                    frame = _writable(pl.DataFrame(batch))
                    frame = frame if predicate is None else frame.filter(predicate)
                    yield frame.select(columns or pl.all())
        except (OSError, duckdb.Error) as error:
            message = None if limit_s is None else limit_s.message
            raise SqlError(message or sentence(error)) from error

    return register_io_source(scan, schema=dict(schema))


def _writable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows, all of which every format can hold.

    Raises:
        SqlError: if there is a time that others than databases do not have.
    """
    column = unwritable(frame)
    if column is not None:
        raise SqlError(
            f"the column {column!r} has a time that other formats lack (infinity, or not in the "
            f"years 1 to 9999); read it as text: {quote_name(column)}::varchar"
        )
    return frame


def sentence(error: Exception) -> str:
    """Return DuckDB's error on one line, without the query that it repeats."""
    message = str(error).partition("\n\nLINE ")[0]
    return " ".join(message.split())
