# pyright: basic
"""Metrics of older runs whose names mean something else by now: readers see them under new ones.

Their parts keep their bytes, as hashes of these are in the journal; a journal that was migrated
says which names are meant.
"""

import json
from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from .journal_files import Files
from .migrations import RENAMED

WITH_METRICS = frozenset({"scores", "evaluations"})
METRIC = "metric"


def renamed(journal: Files, table: str) -> Mapping[str, str]:
    """Return the new names of the metrics of a run's table; nothing if all mean what they say."""
    if table not in WITH_METRICS:
        return {}
    return json.loads(journal.meta(RENAMED) or "{}")


def under_new_names(rows: pl.LazyFrame, names: Mapping[str, str]) -> pl.LazyFrame:
    """Return rows with the metrics' new names."""
    if not names or METRIC not in rows.collect_schema():
        return rows
    return rows.with_columns(pl.col(METRIC).replace(names))


def table_under_new_names(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return a table with the metrics' new names."""
    if not names:
        return rows
    metrics = pa.array([names.get(name, name) for name in rows[METRIC].to_pylist()], pa.string())
    return rows.set_column(rows.column_names.index(METRIC), rows.schema.field(METRIC), metrics)


def holds_renamed(rows: pa.Table, names: Mapping[str, str]) -> bool:
    """Whether one of the rows has a metric with a new name."""
    return bool(names) and not names.keys().isdisjoint(rows[METRIC].to_pylist())
