"""UltraFeedback's published binarised sample: imported, binarised, exported, imported again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import lpfloop
from lpfloop.loop.data.binarize import Binarising, binarised_pairs, graded
from lpfloop.loop.library.read_only_run import ReadOnlyRun

from .arms import Options, Report, Table

DATA = "LPFLOOP_SHARED_DATA"
SAMPLE = "ultrafeedback_binarized_300.jsonl"
FORMAT = "ultrafeedback-binarized"
ONCE, TWICE = "published", "published-again"
CLAIM = (
    "The published sample passes import, receipts, binarisation, export and import again, byte for "
    "byte where the format allows."
)


def study(options: Options) -> Report:
    """Import and export the sample twice, and binarise the imported grades.

    Raises:
        SystemExit: if the environment does not name the folder of the sample.
    """
    if DATA not in os.environ:
        raise SystemExit(f"{DATA} is not set: name the folder that holds {SAMPLE}")
    source = Path(os.environ[DATA]) / SAMPLE
    first = _passed(options, source, ONCE)
    second = _passed(options, first, TWICE)
    with lpfloop.open(ONCE, lake=options.lake) as run:
        rows = [*_imported(source, run), ["exported", *_compared(source, first)]]
    rows.append(["imported and exported again", *_compared(first, second)])
    return Report(claim=CLAIM, tables=[Table(titles=["step", "found", "bytes"], rows=rows)])


def _passed(options: Options, source: Path, run: str) -> Path:
    """Import a file into a run, unless done already, and export its pairs; return their file."""
    words = ["--run", run, "--as", "ultrafeedback", "--source", "ultrafeedback"]
    _lpfloop(options, "import", str(source), *words)
    folder = options.lake / f"{run}-export"
    told = ["--as", FORMAT, "--output", str(folder), "--force"]
    _lpfloop(options, "export", run, "pairs", *told)
    (file,) = folder.glob("**/*.jsonl")
    return file


def _lpfloop(options: Options, *words: str) -> None:
    command = [sys.executable, "-P", "-m", "lpfloop", *words, "--lake", str(options.lake)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def _imported(source: Path, run: ReadOnlyRun) -> Iterator[list[str]]:
    """Give the rows of the table about the import, its receipts, and the binarisation."""
    pairs = run.pairs().collect()
    yield ["imported", f"{len(pairs)} pairs of {len(_lines(source))} rows", ""]
    for row in run.receipts().sort("filter", "outcome").collect().iter_rows(named=True):
        yield [f"receipt of `{row['filter']}`", f"{row['outcome']}: {row['count']}", ""]
    how = Binarising(rule="overall", root_seed=0, iteration=0)
    scored = graded(run.candidates().collect(), run.grades().collect())
    made = binarised_pairs(scored, run.prompts().unique("prompt_id").collect(), how).rows
    sides = ["prompt_id", "chosen_id", "rejected_id"]
    same = len(made.join(pairs.select(sides), on=sides))
    equal = pairs.filter(pl.col("chosen_reward") == pl.col("rejected_reward"))
    found = f"{len(made)} pairs, {same} as published; {len(equal)} published ones have equal scores"
    yield ["binarised by `overall`", found, ""]


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def _compared(before: Path, after: Path) -> tuple[str, str]:
    """Return how many lines two files share, and whether their bytes are equal."""
    lines = _lines(before)
    same = sum(a == b for a, b in zip(lines, _lines(after), strict=False))
    equal = before.read_bytes() == after.read_bytes()
    return f"{same} of {len(lines)} lines the same", "equal" if equal else "not equal"
