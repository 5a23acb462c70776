# pyright: basic
"""The column types that every output format can hold, by DuckDB type.

Polars ends the whole process if its writers meet a type that JSON or CSV lacks, so types that are
not in this list are written as text.
"""

from typing import Any

import polars as pl

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
