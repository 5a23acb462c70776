# pyright: basic
"""Conversions between Polars frames and the Arrow tables that the store seals."""

from collections.abc import Sequence
from functools import cache
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
    """Return a frame's rows as objects of their row type."""
    return from_table(row_type, as_arrow(frame))


def as_arrow(frame: pl.DataFrame) -> ArrowTable:
    """Return a frame as a table; `schemas.to_table` casts it to the types of its schema."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


@cache
def empty_frame(table: str) -> pl.DataFrame:
    """Return an empty frame with a table's columns; do not change it in place."""
    return pl.Schema(SCHEMAS[table]).to_frame()
