"""Parquet files of a few bytes that stand for gigabytes are refused before the memory is taken."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.data.parquet_pages import UNPACKED
from lpfloop.loop.data.parquet_rows import parquet_rows
from lpfloop.loop.data.text_lines import LONGEST_LINE

MIB = 2**20
MOST = 400 * MIB
"""What reading any of these may add to the memory of a process."""
READ = """
import resource, sys
from pathlib import Path
import pyarrow.compute, pyarrow.parquet
from lpfloop.loop.data.files import InputError, placed_rows
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
try:
    rows = list(placed_rows(Path(sys.argv[1])))
    print("read", len(rows), "rows")
except InputError as error:
    print(error)
print(peak() - before)
"""


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def turns(content: pa.Array, offsets: list[int]) -> pa.ListArray:
    role = repeated("user", len(content))
    turn = pa.StructArray.from_arrays([role, content], ["role", "content"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), turn)


def endless() -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array([0, 20_000_000], pa.int32()), pa.nulls(20_000_000, pa.int8())
    )


LONG = "a" * (4 * MIB)
BOMBS: dict[str, Callable[[], tuple[pa.Table, dict[str, object]]]] = {
    "one_text_in_all_rows": lambda: (pa.table({"prompt": repeated(LONG, 1024)}), {}),
    "rows_without_end": lambda: (pa.table({"prompt": repeated(LONG, 500_000)}), {}),
    "one_text_in_all_turns": lambda: (
        pa.table({"messages": turns(repeated(LONG, 1024), list(range(1025)))}),
        {},
    ),
    "a_turn_a_thousand_times": lambda: (
        pa.table({"messages": turns(repeated(LONG, 1024), [0, 1024])}),
        {},
    ),
    "a_text_over_the_limit": lambda: (pa.table({"prompt": ["a" * (11 * MIB)]}), {}),
    "a_page_that_unpacks": lambda: (
        pa.table({"prompt": ["a" * (8 * MIB)] * 24}),
        {"use_dictionary": False},
    ),
    "prefixes_of_one_text": lambda: (
        pa.table({"prompt": [LONG] * 8}),
        {"use_dictionary": False, "column_encoding": {"prompt": "DELTA_BYTE_ARRAY"}},
    ),
    "an_endless_list": lambda: (
        pa.table({"prompt": ["x"], "n": endless()}),
        {},
    ),
    "wide_values": lambda: (
        pa.table({"prompt": ["x"] * 64, "n": pa.array([b"0" * MIB] * 64, pa.binary(MIB))}),
        {},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_the_memory_is_taken(tmp_path, name) -> None:
    path = tmp_path / f"{name}.parquet"
    table, options = BOMBS[name]()
    pq.write_table(table, path, compression="zstd", store_schema=False, **options)
    del table
    assert path.stat().st_size < 100_000
    done = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, check=True
    )
    said, taken = done.stdout.splitlines()
    assert said.startswith(f"{path}: ")
    assert int(taken) < MOST, said


def test_every_command_refuses_it_in_one_sentence(tmp_path) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(BOMBS["one_text_in_all_rows"]()[0], path, store_schema=False)
    for words in (["import", str(path), "--run", "x"], ["run", "--prompts", str(path)]):
        done = CliRunner().invoke(app, [*words, "--lake", str(tmp_path / "lake")])
        assert done.exit_code == 2
        assert "its first 1024 rows take" in " ".join(done.stderr.split())
        assert not (tmp_path / "lake").exists()


def test_a_damaged_page_header_is_one_sentence(tmp_path) -> None:
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


LONGER = "b" * (MIB // 2)


def test_honest_rows_that_repeat_a_long_text_are_read_as_they_are(tmp_path) -> None:
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


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"compression": "gzip"}])
def test_honest_files_are_read_as_before_and_about_as_fast(tmp_path: Path, options) -> None:
    path = tmp_path / "p.parquet"
    texts = [f"{n} " * (n % 50) for n in range(5_000)]
    content = pa.array(texts * 2)
    table = pa.table(
        {
            "messages": turns(content, list(range(0, 10_001, 2))),
            "reference": texts,
            "source": ["one"] * 5_000,
        }
    )
    pq.write_table(table, path, store_schema=False, **options)

    def plainly() -> list[object]:
        with pq.ParquetFile(path) as file:
            return [row for batch in file.iter_batches(1024) for row in batch.to_pylist()]

    def bounded() -> list[object]:
        return list(parquet_rows(path, LONGEST_LINE))

    assert plainly() == bounded() == [row for _, row in placed_rows(path)]
    # Which of the two is read when garbage is due would decide.
    gc.collect()
    gc.disable()
    try:
        costs = [(_seconds(bounded), _seconds(plainly)) for _ in range(15)]
    finally:
        gc.enable()
    assert median(one / other for one, other in costs) < 2


def _seconds(read: Callable[[], object]) -> float:
    start = time.process_time()
    read()
    return time.process_time() - start
