"""Rows in a pipe, and on a full disk."""

import subprocess
import sys
from pathlib import Path

from lpfloop.loop.lake.query.forms import OutputError

SCRIPT = """
import sys, polars as pl
from lpfloop.loop.run.terminal import guard_streams
from lpfloop.loop.lake.query.row_output import write_frame
from lpfloop.loop.lake.query.forms import Form
guard_streams()
frame = pl.select(n=pl.int_range(int(sys.argv[2])), text=pl.lit("\\u202e\\x1bx")).lazy()
try:
    write_frame(frame, Form(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
    sys.exit(9)
"""


def start(form, rows, stdout):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, form, str(rows)], stdout=stdout, stderr=subprocess.PIPE
    )


def ended(process):
    """Return the exit code and the output of a process."""
    said = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(timeout=300), said


def test_reader_that_goes_away():
    process = start("jsonl", 3_000_000, subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert ended(process) == (0, "")


def test_full_disk_is_an_error():
    with Path("/dev/full").open("wb") as full:
        code, said = ended(start("parquet", 10, full))
    assert code == 9
    assert said.startswith(OutputError.__name__)
