"""What no reader took of the rows of a file is named and counted, whatever reads it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.file_row import Row, UnusedFields, as_row
from lpfloop.loop.data.files import placed_rows

names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.integers(), min_size=1), st.sets(names))
def test_what_was_not_taken_is_unused(fields, asked):
    row = Row(fields)
    for name in asked:
        row.get(name)
    # Neither a look at the names nor at what is there takes anything.
    assert set(row) == set(fields)
    assert [name in row for name in fields] == [True] * len(fields)
    assert [row.glance(name) for name in fields] == list(fields.values())
    assert set(row.unused()) == set(fields) - asked


def test_a_row_made_of_another_notes_for_it():
    row = Row({"a": 1, "b": 2, "c": 3, "d": 4})
    made = row.without(["a"]).having({"b": 0, "e": 5}).filled()
    assert [made[name] for name in "bce"] == [0, 3, 5]
    # The `b` that was read is not the row's.
    assert set(row.unused()) == {"a", "b", "d"}


def test_objects_and_lists_in_a_row_are_told_by_their_own_fields():
    turns = [{"role": "user", "weight": 1}, {"role": "assistant"}, {"role": "user"}]
    row = as_row({"meta": {"lang": "en", "hash": "x"}, "turns": turns, "none": None, "no": []})
    assert set(row.unused()) == {"meta", "turns"}
    row["meta"]["lang"]
    for turn in row["turns"][:2]:
        turn["role"]
    assert set(row.unused()) == {"meta.hash", "turns[].weight", "turns[]"}
    assert dict(row["meta"].items())
    assert "meta.hash" not in set(row.unused())


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "csv"])
def test_rows_of_every_kind_of_file_note_what_is_taken(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    rows = [{"prompt": "x", "more": "y"}, {"prompt": "z", "more": None}]
    match ending:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "json":
            path.write_text(json.dumps(rows))
        case "csv":
            path.write_text("prompt,more\nx,y\nz,\n")
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)
    unused = UnusedFields()
    for _, row in placed_rows(path):
        row.get("prompt")
        unused.add(row)
    assert unused.sentence() == "1 field of 2 rows is not used: more (1)"
    assert unused.as_json() == {"rows": 2, "fields": {"more": 1}}


def test_the_fields_of_most_rows_are_named_first():
    unused = UnusedFields()
    for number in range(30):
        unused.add(Row(dict.fromkeys("abcdefghijklmnop"[: 1 + number % 16], 1)))
    said = unused.sentence()
    assert said.startswith("16 fields of 30 rows are not used: a (30), b (28), c (26), ")
    assert said.endswith(", l (8), and 4 more")


def test_nothing_is_said_where_all_was_taken():
    unused = UnusedFields()
    row = Row({"a": 1, "b": ""})
    row.get("a")
    unused.add(row)
    assert unused.sentence() is None
