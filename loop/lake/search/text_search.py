# pyright: basic
"""Searching a lake: parsing a query, updating the index, and snippets of matches."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from ....configs.load import stored_config
from ....configs.schema import ConfigError, RunConfig
from ....stores.durable import make_folder
from ....stores.index import (
    SEARCHED,
    Index,
    IndexQuery,
    check_same,
    index_folder,
    is_there,
    without_vectors,
    writing,
)
from ....stores.lake import run_names
from ....stores.lock import LockedError
from ....stores.sealed import DamagedError
from ...data.files import InputError
from ...run.models import NO_MODEL
from ...run.terminal import say
from ..query.runs import open_run
from .embedding import check_unchanged, configured, opened
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
    """A search: the query, how (by words, by meaning, or both), and among which rows."""

    text: str
    by_words: bool = True
    by_meaning: bool = False
    table: str = "critiques"
    run: str | None = None
    iteration: int | None = None
    task: str | None = None
    limit: int = 20


def search(lake: Path, wanted: TextSearch) -> pl.DataFrame:
    """Return the best matches, best first, each with the words around the match.

    A few missing rows are indexed first; with more, a message says how many are missing.

    Raises:
        InputError: if the query cannot be parsed.
        NoSuchRunError: if the run does not exist, or there is none.
        IndexUnusableError: if there is no index that can answer it.
    """
    parsed(wanted)
    if wanted.run is not None or not run_names(lake):
        open_run(lake, wanted.run).close()
    return matches(_up_to_date(lake), wanted)


def matches(index: Index, wanted: TextSearch) -> pl.DataFrame:
    """Return the best matches among what is indexed; nothing is added to the index.

    Raises:
        InputError: if the query cannot be parsed.
        IndexUnusableError: if the index cannot answer it.
    """
    question = parsed(wanted)
    if wanted.by_meaning:
        question = replace(question, vector=_vector(index, wanted.text))
    if not wanted.by_words:
        question = replace(question, words="", phrases=())
    found = index.search(question)
    words = [*WORD.findall(question.words), *WORD.findall(" ".join(question.phrases))]
    snippets = [snippet(text, words) for text in found["text"]]
    return found.with_columns(snippet=pl.Series(snippets, dtype=pl.String)).select(COLUMNS)


def parsed(wanted: TextSearch) -> IndexQuery:
    """Return a query's words, any of which may match, and its phrases, all of which must.

    Raises:
        InputError: if it has no word, or an unclosed quotation mark.
    """
    if wanted.text.count('"') % 2:
        raise InputError(
            f"query {wanted.text!r}: a quotation mark is open; put one on both sides of a phrase"
        )
    phrases = [" ".join(WORD.findall(phrase)) for phrase in PHRASE.findall(wanted.text)]
    words = " ".join(WORD.findall(PHRASE.sub(" ", wanted.text)))
    if not (words or any(phrases)):
        raise InputError(f"query {wanted.text!r}: it has no word; give at least one")
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


def reindexed(
    lake: Path, run: str | None, settings: Sequence[str], *, full: bool, embed: bool
) -> dict[str, Any]:
    """Do what `lpfloop lake reindex` does; return what the index holds.

    Raises:
        ConfigError: if the configured embedder cannot be used.
    """
    if run is not None or not run_names(lake):
        open_run(lake, run).close()
    if embed or settings:
        done = _embedded(lake, run, _config(lake, run, settings), full=full)
    else:
        done = reindex(lake, run, full=full)
    index = Index(index_folder(lake))
    return {
        "added": done.rows,
        "forgotten": done.forgotten,
        "rows": {table: index.count(table) for table in SEARCHED},
        "vectors": None if index.vectors is None else asdict(index.vectors),
    }


def _embedded(lake: Path, run: str | None, config: RunConfig, *, full: bool) -> Added:
    """Bring the index up to date with vectors by the configured embedder."""
    wanted = configured(config)
    folder = make_folder(index_folder(lake))
    if not full and is_there(folder):
        check_same(folder, Index(folder).vectors, wanted)
    with opened(wanted, folder) as embed:
        vectors = replace(wanted, dims=embed(["dimensions"]).type.list_size)
        with writing(lake, vectors, anew=full) as index:
            return catch_up(lake, index, embed, run)


def _config(lake: Path, run: str | None, settings: Sequence[str]) -> RunConfig:
    """Return the configuration of a run, with the embedder's settings changed.

    Without a name it is that of the latest run with a policy: one that only critiques has none.
    """
    other = next((text for text in settings if not text.startswith("index.")), None)
    if other is not None:
        raise ConfigError(f"--set {other}: only settings of the index can be given here")
    if run is None:
        latest = (_stored(lake, name, settings) for name in reversed(run_names(lake)))
        found = next((config for config in latest if config.policy.model != NO_MODEL), None)
        if found is not None:
            return found
    return _stored(lake, run, settings)


def _stored(lake: Path, run: str | None, settings: Sequence[str]) -> RunConfig:
    reader = open_run(lake, run)
    stored = json.loads(reader.journal.meta("config") or "{}")
    reader.close()
    return stored_config(stored, settings, os.environ, to_run=False)


def reindex(lake: Path, run: str | None = None, *, full: bool = False) -> Added:
    """Bring the index of a lake up to date, or rebuild it without vectors.

    Raises:
        IndexUnusableError: if it is damaged, or its embedder is gone.
        LockedError: if another process writes it.
    """
    with writing(lake, None, anew=full) as index:
        if index.vectors is None:
            return catch_up(lake, index, None, run)
        check_unchanged(index.vectors, index.folder)
        with opened(index.vectors, index.folder) as embed:
            return catch_up(lake, index, embed, run)


def _up_to_date(lake: Path) -> Index:
    """Open the index; add a few missing rows, or else report how many are missing."""
    folder = index_folder(lake)
    there = is_there(folder)
    index = Index(folder) if there else None
    owed = missing(lake, index.indexed() if index else frozenset())
    simple = index is None or index.vectors is None
    if simple and (owed.stale or owed.rows or index is None) and owed.rows <= AT_ONCE:
        # Without permission to write, or with another writer, the search uses the index as it is.
        try:
            reindex(lake)
            return Index(folder)
        except DamagedError as error:
            say(f"the index is not brought up to date: {error}")
        except (LockedError, PermissionError):
            pass
    index = index or Index(folder)
    if owed.rows:
        told = "1 row is" if owed.rows == 1 else f"{owed.rows:,} rows are"
        say(f"{told} not indexed yet: `lpfloop lake reindex` adds what is missing")
    return index


def _vector(index: Index, text: str) -> tuple[float, ...]:
    """Return the vector of a query, by the index's embedder."""
    if index.vectors is None:
        raise without_vectors(index.folder)
    check_unchanged(index.vectors, index.folder)
    with opened(index.vectors, index.folder) as embed:
        return tuple(embed([text])[0].as_py())
