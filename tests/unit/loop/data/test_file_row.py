"""lpfloop names and counts unused fields of a file's rows, for every reader."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.file_row import Row, as_row
from lpfloop.loop.data.files import placed_rows
from lpfloop.loop.data.row_notes import RowNotes

names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.integers(), min_size=1), st.sets(names))
def test_not_taken_is_unused(fields, asked):
    row = Row(fields)
    for name in asked:
        row.get(name)
    # Neither listing the names nor `in` nor `glance` marks a field as used.
    assert set(row) == set(fields)
    assert [name in row for name in fields] == [True] * len(fields)
    assert [row.glance(name) for name in fields] == list(fields.values())
    assert set(row.unused_fields()) == set(fields) - asked


def test_nested_fields():
    turns = [{"role": "user", "weight": 1}, {"role": "assistant"}, {"role": "user"}]
    row = as_row({"meta": {"lang": "en", "hash": "x"}, "turns": turns, "none": None, "no": []})
    assert set(row.unused_fields()) == {"meta", "turns"}
    row["meta"]["lang"]
    for turn in row["turns"][:2]:
        turn["role"]
    assert set(row.unused_fields()) == {"meta.hash", "turns[].weight", "turns[]"}
    assert dict(row["meta"].items())
    assert "meta.hash" not in set(row.unused_fields())


def test_unused_of_a_file(subtests, tmp_path):
    for name, text in [
        ("rows.json", '[{"prompt": "x", "more": "y"}, {"prompt": "z", "more": null}]'),
        ("rows.csv", "prompt,more\nx,y\nz,\n"),
    ]:
        with subtests.test(case=name):
            path = tmp_path / name
            path.write_text(text)
            notes = RowNotes()
            for _, row in placed_rows(path):
                row.get("prompt")
                notes.read(row)
            assert notes.as_json()["unused"] == {"rows": 2, "fields": {"more": 1}}
