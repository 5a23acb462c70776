# pyright: basic
"""Searching a lake: parsing a query, updating the index, and snippets of matches.

The difference between the journals' parts and the index's is added or removed, so an update can be
interrupted and repeated at any time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from ....stores.address import run_argument
from ....stores.index import (
    SEARCHED,
    Index,
    IndexQuery,
    IndexWriter,
    index_folder,
    is_there,
    part_key,
    writing,
)
from ....stores.journal_reader import JournalError, Part
from ....stores.lake import RunReader, run_folder, run_names
from ....stores.lock import LockedError
from ....stores.sealed import DamagedError
from ...data.files import InputError
from ...run.terminal import say
from ..query.runs import open_run

BATCH_ROWS = 65_536
"""Rows that are added at once: some 100 MB."""
MANY = 50_000
"""From so many missing rows on, a search says that it waits for the index."""

PHRASE = re.compile(r'"([^"]*)"')
WORD = re.compile(r"\w+")
SNIPPET = 160
STEM = 4
"""A word that shares this many first letters with a query's may be the match (stemming)."""

_CONTENTS = pl.col("messages").list.eval(pl.element().struct.field("content")).list.join("\n")
"""A conversation as one text."""
COLUMNS = ("score", "run", "iteration", "id", "prompt_id", "task", "snippet")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSearch:
    """A search: the query, and among which rows."""

    text: str
    table: str = "critiques"
    run: str | None = None
    iteration: int | None = None
    task: str | None = None
    limit: int = 20


def search(lake: Path, query: TextSearch) -> pl.DataFrame:
    """Return the best matches, best first, each with the words around the match.

    Rows that the index lacks are added first.

    Raises:
        InputError: if the query cannot be parsed.
        NoSuchRunError: if the run does not exist, or the lake is empty.
        IndexUnusableError: if the index is missing or cannot answer it.
    """
    question = parse_query(query)
    if query.run is not None or not run_names(lake):
        open_run(lake, query.run).close()
    found = _up_to_date(lake).search(question)
    words = [*WORD.findall(question.words), *WORD.findall(" ".join(question.phrases))]
    snippets = [snippet(text, words) for text in found["text"]]
    return found.with_columns(snippet=pl.Series(snippets, dtype=pl.String)).select(COLUMNS)


def parse_query(query: TextSearch) -> IndexQuery:
    """Return a query's words, any of which may match, and its phrases, all of which must.

    Raises:
        InputError: if it lacks words, or has an unclosed quotation mark.
    """
    if query.text.count('"') % 2:
        raise InputError(
            f"query {query.text!r}: a quotation mark is open; put one on both sides of a phrase"
        )
    phrases = [" ".join(WORD.findall(phrase)) for phrase in PHRASE.findall(query.text)]
    words = " ".join(WORD.findall(PHRASE.sub(" ", query.text)))
    if not (words or any(phrases)):
        raise InputError(f"query {query.text!r}: give at least one word")
    return IndexQuery(
        table=query.table,
        words=words,
        phrases=tuple(phrase for phrase in phrases if phrase),
        run=query.run,
        iteration=query.iteration,
        task=query.task,
        limit=query.limit,
    )


def snippet(text: str, words: list[str]) -> str:
    """Return the part of a text with most of the words, on one line."""
    flat = " ".join(text.split())
    starts = sorted({word.lower()[:STEM] for word in words})
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, starts))})", re.IGNORECASE)
    places = [match.start() for match in pattern.finditer(flat)] if starts else []
    near = max(places, key=lambda p: (len(_near(places, p)), -p), default=0)
    begin = max(near - SNIPPET // 4, 0)
    end = begin + SNIPPET
    return f"{'…' if begin else ''}{flat[begin:end]}{'…' if end < len(flat) else ''}"


def _near(places: list[int], place: int) -> list[int]:
    return [other for other in places if 0 <= other - place < SNIPPET * 3 // 4]


def _up_to_date(lake: Path) -> Index:
    """Add the missing rows to the index, and open it.

    Without permission to write, or with another writer, the search uses the index as it is.
    """
    folder = index_folder(lake)
    index = Index(folder) if is_there(folder) else None
    pending, stale = _missing(lake, index.indexed_parts() if index else frozenset())
    rows = sum(part.rows for parts in pending.values() for part in parts)
    if index is None or stale or rows:
        if rows > MANY:
            say(f"the search index takes in {rows:,} rows first")
        try:
            with writing(lake) as writer:
                _catch_up(lake, writer)
            return Index(folder)
        except DamagedError as error:
            say(f"the index is not brought up to date: {error}")
        except (LockedError, PermissionError):
            say(f"the index cannot be written now: {rows:,} rows are not searched")
    return index or Index(folder)


def _missing(
    lake: Path, indexed: frozenset[str]
) -> tuple[Mapping[str, Sequence[Part]], frozenset[str]]:
    """Return the parts that are not indexed, by run, and the keys of indexed parts that left."""
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
        found = (part for table in SEARCHED for part in run.journal.parts(table=table))
        keyed = {part_key(name, part): part for part in found if part.rows}
        run.close()
        tables.update(keyed)
        parts[name] = [part for key, part in keyed.items() if key not in indexed]
    # Parts of a run that cannot be read now may not be stale.
    return parts, frozenset() if unread else indexed - tables


def _catch_up(lake: Path, index: IndexWriter) -> None:
    """Add the missing rows of all runs, and remove rows that left their journal."""
    pending, stale = _missing(lake, index.indexed_parts())
    if stale:
        index.forget(stale)
    for name, parts in pending.items():
        _add_run(lake, name, parts, index)
    index.finish()


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
            text=_CONTENTS,
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
