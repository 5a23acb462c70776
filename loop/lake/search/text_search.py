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
from .index_lake import catch_up, missing

MANY = 50_000
"""From so many missing rows on, a search says that it waits for the index."""

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
    pending = missing(lake, index.indexed_parts() if index else frozenset())
    if index is None or pending.stale or pending.rows:
        if pending.rows > MANY:
            say(f"the search index takes in {pending.rows:,} rows first")
        try:
            with writing(lake) as writer:
                catch_up(lake, writer)
            return Index(folder)
        except DamagedError as error:
            say(f"the index is not brought up to date: {error}")
        except (LockedError, PermissionError):
            say(f"the index cannot be written now: {pending.rows:,} rows are not searched")
    return index or Index(folder)
