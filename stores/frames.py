# pyright: basic
"""Between Polars frames and the tables that the store seals."""

from collections.abc import Sequence
from typing import cast

import polars as pl
import pyarrow as pa

from .schemas import SCHEMAS, ArrowTable, R, Row, from_table, to_table


def as_frame(table: ArrowTable) -> pl.DataFrame:
    """Return a table's rows as a frame."""
    return pl.DataFrame(cast("pa.Table", table))


def rows_frame(row_type: type[Row], rows: Sequence[Row]) -> pl.DataFrame:
    """Return rows as a frame."""
    return as_frame(to_table(row_type, rows))


def frame_rows(row_type: type[R], frame: pl.DataFrame) -> list[R]:
    """Return a frame's rows as what they are."""
    return from_table(row_type, as_arrow(frame))


def as_arrow(frame: pl.DataFrame) -> ArrowTable:
    """Return a frame as a table; `schemas.to_table` gives it the types of its noun."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def empty(table: str) -> pl.DataFrame:
    """Return no rows of a table, with its columns."""
    return pl.Schema(SCHEMAS[table]).to_frame()
