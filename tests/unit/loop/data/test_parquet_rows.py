"""lpfloop reads honest Parquet files unchanged, and reports damage in one sentence."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.data.table_files import UNPACKED

LONGER = "b" * 2**19


def test_damaged_page_header(tmp_path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"prompt": ["one", "two"]}), path)
    data = path.read_bytes()
    read = [
        _outcome(path, bytes([*data[:n], data[n] ^ 0xFF, *data[n + 1 :]])) for n in range(4, 40)
    ]
    assert set(read) == {"refused"}


def _outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        return f"{len(list(placed_rows(path)))} rows"
    except InputError as error:
        return "refused" if str(error).startswith(f"{path}: ") else str(error)


def test_repeated_columns(tmp_path, subtests):
    """Arrow allows them, in a table and in the objects of a column."""
    one = pa.array([{"a": 1}])
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    listed = pa.ListArray.from_arrays([0, 1], twice)
    for table, said in [
        (pa.table([one, one], names=["prompt", "prompt"]), "the column 'prompt' twice"),
        (pa.table([twice], names=["meta"]), "'meta' has the column 'a' twice"),
        (pa.table([listed], names=["turns"]), "'turns' has the column 'a' twice"),
    ]:
        for ending in ("parquet", "arrow"):
            path = tmp_path / f"t.{ending}"
            if ending == "parquet":
                pq.write_table(table, path)
            else:
                with pa.ipc.new_stream(path, table.schema) as stream:
                    stream.write_table(table)
            with (
                subtests.test(said=said, ending=ending),
                pytest.raises(InputError, match=said),
            ):
                list(placed_rows(path))


def test_values_that_json_lacks(tmp_path):
    path = tmp_path / "t.parquet"
    day = dt.date(2026, 5, 1)
    pq.write_table(pa.Table.from_pylist([{"prompt": "q", "split": day}]), path)
    with pytest.raises(InputError, match="'split' must be one of train"):
        read_prompts(path)
    checks = [{"kind": "max_words", "argument": {"count": Decimal(3)}}]
    pq.write_table(pa.Table.from_pylist([{"prompt": "q", "checks": checks}]), path)
    with pytest.raises(InputError, match="max_words"):
        read_prompts(path)


def test_rows_that_repeat_a_long_text(tmp_path) -> None:
    asked = [None, LONGER, "short", LONGER]
    rows = [
        {
            "prompt": asked[n % 4],
            "messages": [{"role": "user", "content": asked[n % 3 + 1]}, None][: n % 3] or None,
            "extra": {"n": n, "of": None} if n % 5 else None,
            "tags": [["x"], []][: n % 3],
        }
        for n in range(160)
    ]
    path = tmp_path / "p.parquet"
    table = pa.Table.from_pylist(rows)
    assert table.nbytes > UNPACKED
    pq.write_table(table, path)
    assert [row for _, row in placed_rows(path)] == rows
