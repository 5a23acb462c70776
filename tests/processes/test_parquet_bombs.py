"""lpfloop refuses tiny Parquet files that expand to gigabytes, before it allocates the memory."""

import json
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

MIB = 2**20
MOST = 400 * MIB
"""Memory that reading any of these files may add to a process."""
READ = """
import json, resource, sys
from pathlib import Path
import pyarrow.compute, pyarrow.parquet
from lpfloop.loop.data.files import InputError, placed_rows
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
found = []
for path in sys.argv[1:]:
    before = peak()
    try:
        said = f"read {len(list(placed_rows(Path(path))))} rows"
    except InputError as error:
        said = str(error)
    found.append([path, said, peak() - before])
print(json.dumps(found))
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
    "one_text_in_all_turns": lambda: (
        pa.table({"messages": turns(repeated(LONG, 1024), list(range(1025)))}),
        {},
    ),
    "a_text_over_the_limit": lambda: (pa.table({"prompt": ["a" * (11 * MIB)]}), {}),
    "an_endless_list": lambda: (pa.table({"prompt": ["x"], "n": endless()}), {}),
    "wide_values": lambda: (
        pa.table({"prompt": ["x"] * 64, "n": pa.array([b"0" * MIB] * 64, pa.binary(MIB))}),
        {},
    ),
}


def test_decompression_bomb_memory(tmp_path, subtests) -> None:
    paths = []
    for name, make in BOMBS.items():
        path = tmp_path / f"{name}.parquet"
        table, options = make()
        pq.write_table(table, path, compression="zstd", store_schema=False, **options)
        assert path.stat().st_size < 100_000
        paths.append(path)
    done = subprocess.run(
        [sys.executable, "-c", READ, *paths], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert len(found) == len(BOMBS)
    for path, said, taken in found:
        with subtests.test(path=path):
            assert said.startswith(f"{path}: ")
            assert taken < MOST, said
