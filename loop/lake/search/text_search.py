# pyright: basic
"""Searching a lake: parsing a query, updating the index, and snippets of matches."""

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ....stores.index import Index, IndexQuery, index_folder, is_there, writing
from ....stores.lake import run_names
from ....stores.lock import LockedError
from ....stores.sealed import DamagedError
from ...data.files import InputError
from ...run.terminal import say
from ..query.runs import open_run
from .index_lake import Added, catch_up, missing

AT_ONCE = 50_000
"""At most this many missing rows are indexed by a search itself, in a few seconds."""

PHRASE = re.compile(r'"([^"]*)"')
WORD = re.compile(r"\w+")
SNIPPET = 160
STEM = 4
"""A word that shares this many first letters with a query's may be the match (stemming)."""

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


def search(lake: Path, wanted: TextSearch) -> pl.DataFrame:
    """Return the best matches, best first, each with the words around the match.

    A few missing rows are indexed first; with more, a message reports how many are missing.

    Raises:
        InputError: if the query cannot be parsed.
        NoSuchRunError: if the run does not exist, or the lake is empty.
        IndexUnusableError: if the index is missing or cannot answer it.
    """
    parsed(wanted)
    if wanted.run is not None or not run_names(lake):
        open_run(lake, wanted.run).close()
    return matches(_up_to_date(lake), wanted)


def matches(index: Index, wanted: TextSearch) -> pl.DataFrame:
    """Return the best matches among the indexed rows; the index is not updated.

    Raises:
        InputError: if the query cannot be parsed.
        IndexUnusableError: if the index cannot answer it.
    """
    question = parsed(wanted)
    found = index.search(question)
    words = [*WORD.findall(question.words), *WORD.findall(" ".join(question.phrases))]
    snippets = [snippet(text, words) for text in found["text"]]
    return found.with_columns(snippet=pl.Series(snippets, dtype=pl.String)).select(COLUMNS)


def parsed(wanted: TextSearch) -> IndexQuery:
    """Return a query's words, any of which may match, and its phrases, all of which must.

    Raises:
        InputError: if it lacks words, or has an unclosed quotation mark.
    """
    if wanted.text.count('"') % 2:
        raise InputError(
            f"query {wanted.text!r}: a quotation mark is open; put one on both sides of a phrase"
        )
    phrases = [" ".join(WORD.findall(phrase)) for phrase in PHRASE.findall(wanted.text)]
    words = " ".join(WORD.findall(PHRASE.sub(" ", wanted.text)))
    if not (words or any(phrases)):
        raise InputError(f"query {wanted.text!r}: give at least one word")
    return IndexQuery(
        table=wanted.table,
        words=words,
        phrases=tuple(phrase for phrase in phrases if phrase),
        run=wanted.run,
        iteration=wanted.iteration,
        task=wanted.task,
        limit=wanted.limit,
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


def reindex(lake: Path, run: str | None = None, *, full: bool = False) -> Added:
    """Bring the index of a lake up to date with all runs or with one, or rebuild it.

    Raises:
        NoSuchRunError: if the run does not exist, or the lake is empty.
        IndexUnusableError: if it is damaged.
        LockedError: if another process writes it.
    """
    if run is not None or not run_names(lake):
        open_run(lake, run).close()
    with writing(lake, anew=full) as index:
        return catch_up(lake, index, run)


def _up_to_date(lake: Path) -> Index:
    """Open the index; add a few missing rows, or else report how many are missing."""
    folder = index_folder(lake)
    there = is_there(folder)
    index = Index(folder) if there else None
    pending = missing(lake, index.indexed() if index else frozenset())
    if (pending.stale or pending.rows or index is None) and pending.rows <= AT_ONCE:
        # Without permission to write, or with another writer, the search uses the index unchanged.
        try:
            reindex(lake)
            return Index(folder)
        except DamagedError as error:
            say(f"the index is not brought up to date: {error}")
        except (LockedError, PermissionError):
            pass
    index = index or Index(folder)
    if pending.rows:
        told = "1 row is" if pending.rows == 1 else f"{pending.rows:,} rows are"
        say(f"{told} not indexed yet: `lpfloop lake reindex` adds what is missing")
    return index
