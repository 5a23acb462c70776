"""Packing puts rows into fewer files, and changes nothing that anybody reads."""

import subprocess
import sys
from pathlib import Path

from lakes import make_units

from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.lake import run_folder
from lpfloop.stores.packing import pack_all

UNITS = 12


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("parts/*/*.parquet"))


READING = """
import sys, time
from pathlib import Path
from lpfloop.stores.lake import RunReader
reader = RunReader(Path(sys.argv[1]))
lazy = reader.scan("candidates")
print("open", flush=True)
sys.stdin.readline()
print(lazy.collect().height, flush=True)
reader.close()
"""


def test_reader_elsewhere_keeps_files(tmp_path):
    folder, counts = run_folder(tmp_path / "lake", "a"), [3 + chunk % 4 for chunk in range(UNITS)]
    writer = make_units(folder, counts)
    process = subprocess.Popen(
        [sys.executable, "-c", READING, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    before = parts(folder)
    assert pack_all(writer.journal) == 3 * UNITS
    assert parts(folder) == before
    found = garbage(writer.journal)
    assert {piece.reason for piece in found} == {"its rows lie in a pack"}
    assert collect(writer.journal, found) == []
    out, _ = process.communicate("\n")
    assert out == f"{sum(counts)}\n"
    assert pack_all(writer.journal) == 0
    assert parts(folder) == []
    writer.close()
