"""Every record type has a schema, and returns from Arrow unchanged."""

import polars as pl
from rows import ONE_OF_EACH

from lpfloop.stores.schemas import SCHEMAS, TABLES, from_table, to_table


def test_rows_survive_arrow(subtests):
    for row in ONE_OF_EACH:
        with subtests.test(case=type(row).__name__):
            table = to_table(type(row), [row, row])
            assert from_table(type(row), table) == [row, row]


def test_empty_table_keeps_schema(subtests):
    for row_type in TABLES:
        with subtests.test(case=row_type):
            table = to_table(row_type, [])
            assert table.schema == SCHEMAS[TABLES[row_type]]
            assert from_table(row_type, table) == []


def test_unread_rating_is_null():
    critique = next(row for row in ONE_OF_EACH if type(row).__name__ == "Critique")
    frame = pl.DataFrame(to_table(type(critique), [critique]))
    ratings = [aspect["rating"] for aspect in frame["aspects"][0]]
    assert ratings == [1, None]
