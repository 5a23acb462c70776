"""Every noun has a schema, and comes back from Arrow as it was."""

from dataclasses import fields

import polars as pl
import pytest

from examples import ONE_OF_EACH, PAIR
from lpfloop.stores.schemas import ROW_TYPES, SCHEMAS, TABLES, from_table, to_table


def test_there_is_an_example_of_every_noun():
    assert {type(row) for row in ONE_OF_EACH} == set(ROW_TYPES.values())


@pytest.mark.parametrize("row", ONE_OF_EACH, ids=lambda row: type(row).__name__)
def test_rows_survive_the_way_through_arrow(row):
    table = to_table(type(row), [row, row])
    assert from_table(type(row), table) == [row, row]


@pytest.mark.parametrize("row_type", TABLES, ids=lambda t: t.__name__)
def test_columns_are_the_fields_of_the_noun(row_type):
    assert SCHEMAS[TABLES[row_type]].names == [f.name for f in fields(row_type)]


@pytest.mark.parametrize("row_type", TABLES, ids=lambda t: t.__name__)
def test_an_empty_table_keeps_its_schema(row_type):
    table = to_table(row_type, [])
    assert table.schema == SCHEMAS[TABLES[row_type]]
    assert from_table(row_type, table) == []


def test_a_rating_that_could_not_be_read_is_null_not_zero():
    critique = next(row for row in ONE_OF_EACH if type(row).__name__ == "Critique")
    frame = pl.DataFrame(to_table(type(critique), [critique]))
    ratings = [aspect["rating"] for aspect in frame["aspects"][0]]
    assert ratings == [1, None]


def test_pairs_have_the_conversational_columns_that_trl_takes():
    row = to_table(type(PAIR), [PAIR]).to_pylist()[0]
    assert row["prompt"] == [{"role": "user", "content": "2 + 3?"}]
    assert row["chosen"] == [{"role": "assistant", "content": "5"}]
    assert row["rejected"] == [{"role": "assistant", "content": "6"}]
