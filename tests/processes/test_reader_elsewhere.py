"""lpfloop keeps files of rows that a reader in another process may still use."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from lakes import make_units

from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder

UNITS = 12


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("files/*/*.parquet"))


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
    make_units(folder, counts).close()
    process = subprocess.Popen(
        [sys.executable, "-c", READING, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    before = files(folder)
    with closing(Journal(folder)) as journal:
        journal.forget(1, "sample")
        found = garbage(journal)
        assert {piece.path for piece in found} == set(before)
        assert collect(journal, found) == []
        assert files(folder) == before
        out, _ = process.communicate("\n")
        assert out == f"{sum(counts)}\n"
        assert collect(journal, found) == found
    assert files(folder) == []
