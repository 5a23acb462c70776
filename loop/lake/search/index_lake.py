# pyright: basic
"""Bringing the search index up to date with the runs of a lake.

The difference between the journals' parts and the index's is added or removed, so an update can be
interrupted and repeated at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from ....stores.address import run_argument
from ....stores.index import SEARCHED, IndexWriter, part_key
from ....stores.journal_reader import JournalError, Part
from ....stores.lake import RunReader, run_folder, run_names
from ....stores.sealed import DamagedError
from ...run.terminal import say

BATCH_ROWS = 65_536
"""Rows that are added at once: some 100 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Parts that are not indexed, by run, and keys of indexed parts that are stale."""

    parts: Mapping[str, Sequence[Part]]
    stale: frozenset[str]

    @property
    def rows(self) -> int:
        """How many rows are not indexed."""
        return sum(part.rows for parts in self.parts.values() for part in parts)


def missing(lake: Path, indexed: frozenset[str]) -> Missing:
    """Compare the committed rows of the runs with the index."""
    parts: dict[str, list[Part]] = {}
    tables = set[str]()
    unread = False
    for name in run_names(lake):
        try:
            run = RunReader(run_folder(lake, name))
        except JournalError as error:
            unread = True
            say(f"run {name} is skipped: {error}")
            continue
        keyed = {part_key(name, part): part for part in _parts_to_index(run)}
        run.close()
        tables.update(keyed)
        parts[name] = [part for key, part in keyed.items() if key not in indexed]
    # Parts of a run that cannot be read now may not be stale.
    return Missing(parts=parts, stale=frozenset() if unread else indexed - tables)


def catch_up(lake: Path, index: IndexWriter) -> None:
    """Add the missing rows of all runs, and remove rows that left their journal."""
    pending = missing(lake, index.indexed_parts())
    if pending.stale:
        index.forget(pending.stale)
    for name, parts in pending.parts.items():
        _add_run(lake, name, parts, index)
    index.finish()


def _parts_to_index(run: RunReader) -> Iterator[Part]:
    for table in SEARCHED:
        yield from (part for part in run.journal.parts(table=table) if part.rows)


def _add_run(lake: Path, name: str, parts: Sequence[Part], index: IndexWriter) -> None:
    with closing(RunReader(run_folder(lake, name))) as run:
        tasks = run.scan("prompts").select("prompt_id", "task").unique("prompt_id").collect()
        for table, batch in _batches(parts):
            rows = _rows(run, table, batch, tasks)
            index.add(table, [part_key(name, part) for part in batch], rows.to_arrow())


def _batches(parts: Sequence[Part]) -> Iterator[tuple[str, list[Part]]]:
    """Yield parts of one table together, up to a number of rows."""
    for table, group in groupby(parts, key=lambda part: part.table):
        batch: list[Part] = []
        for part in group:
            if batch and sum(p.rows for p in batch) + part.rows > BATCH_ROWS:
                yield table, batch
                batch = []
            batch.append(part)
        yield table, batch


def _rows(run: RunReader, table: str, parts: Sequence[Part], tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of parts in the index's form, each with the key of its part."""
    name = run.folder.name
    keys = [key for part in parts for key in [part_key(name, part)] * part.rows]
    rows = run.scan_parts(table, parts)
    if table == "prompts":
        rows = rows.select(
            pl.col("prompt_id").alias("id"),
            pl.lit(0, pl.Int64).alias("iteration"),
            "prompt_id",
            _contents().alias("text"),
        )
    else:
        identity = "candidate_id" if table == "candidates" else "critique_id"
        rows = rows.select(pl.col(identity).alias("id"), "iteration", "prompt_id", "text")
    try:
        there = rows.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        message = str(error).partition("\n")[0]
        raise DamagedError(
            f"{table} of run {name} cannot be read ({message}); `lpfloop lake verify "
            f"{run_argument(run.folder)}` says more"
        ) from error
    found = there.with_columns(pl.lit(name).alias("run"), pl.Series("part", keys))
    return found.join(tasks, on="prompt_id", how="left", maintain_order="left")


def _contents() -> pl.Expr:
    """Return a conversation as one text."""
    return pl.col("messages").list.eval(pl.element().struct.field("content")).list.join("\n")
