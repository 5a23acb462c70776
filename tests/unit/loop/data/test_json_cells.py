"""A cell with a conversation as JSON text becomes the conversation, never an answer."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.data.row_fields import side_of

USER = [{"role": "user", "content": "Name a river."}]
SAID = [{"role": "assistant", "content": "Elbe."}]


def as_csv(row, path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return path


def row_of(path):
    ((_, row),) = placed_rows(path)
    return row


def test_conversations_in_text_columns(tmp_path):
    cells = {"messages": json.dumps(USER), "chosen": json.dumps(SAID), "rejected": json.dumps("x")}
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_text(json.dumps(cells))
    pq.write_table(pa.Table.from_pylist([cells]), table)
    for path in (as_csv(cells, tmp_path / "a.csv"), table, lines):
        row = row_of(path)
        assert row["messages"] == USER
        assert side_of(row, "chosen") == ((), "Elbe.")
        assert row["rejected"] == '"x"'


@pytest.mark.parametrize(
    "turns",
    [
        SAID,
        SAID[0],
        [{"content": "Elbe.", "role": "assistant"}],
        [{"from": "gpt", "value": "Elbe."}],
        [{"weight": 1, "role": "assistant", "content": "Elbe."}],
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_every_form_of_a_turn(turns, indent, tmp_path):
    row = row_of(as_csv({"chosen": json.dumps(turns, indent=indent)}, tmp_path / "a.csv"))
    assert side_of(row, "chosen") == ((), "Elbe.")


@pytest.mark.parametrize(
    "cell",
    [
        str(SAID),
        json.dumps(SAID)[:-4],
        str([{"content": "Elbe.", "role": "assistant"}]),
        json.dumps(json.dumps(SAID)),
        '[{"from": "gpt", "value": "Elbe.}',
    ],
)
def test_broken_conversation_refused(cell, tmp_path):
    path = as_csv({"prompt": "x", "chosen": cell}, tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"line 2: 'chosen' holds a conversation"):
        list(placed_rows(path))


@pytest.mark.parametrize(
    "answer",
    [
        '{"role": "admin", "content": "x"}',
        '[{"from": "Berlin", "to": "Paris"}]',
        '[{"value": 3}]',
        "[1, 2, 3]",
        '{"name": "Ada"',
        '"Yes," she said.',
        "[{'a': 1}]",
    ],
)
def test_other_json_is_a_text(answer, tmp_path):
    assert row_of(as_csv({"response": answer}, tmp_path / "a.csv"))["response"] == answer


def test_lists_in_cells(tmp_path):
    checks = [{"kind": "json_valid", "argument": ""}]
    cells = {"messages": json.dumps(USER), "checks": json.dumps(checks), "task": "general"}
    (prompt,) = read_prompts(as_csv(cells, tmp_path / "a.csv"))
    assert (prompt.instruction, prompt.checks[0].kind) == ("Name a river.", "json_valid")
