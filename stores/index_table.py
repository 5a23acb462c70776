# pyright: basic
"""One table of the search index in LanceDB: its columns, its indices, queries on it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import polars as pl
import pyarrow as pa

KEPT = timedelta(hours=1)
"""How long a replaced version is kept for readers that still use it."""

ROW = pa.schema(
    [
        ("id", pa.string()),
        ("run", pa.string()),
        ("iteration", pa.int32()),
        ("task", pa.string()),
        ("prompt_id", pa.string()),
        ("part", pa.string()),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A query: any of the words, all of the phrases; a field that is None is not used."""

    table: str
    words: str = ""
    phrases: tuple[str, ...] = ()
    run: str | None = None
    iteration: int | None = None
    task: str | None = None
    limit: int = 20


def finish(table: Any) -> None:
    """Index a table's new rows; the first time, all rows."""
    from lancedb.index import FTS, Bitmap

    made = {index.name for index in table.list_indices()}
    if table.count_rows() and "text_idx" not in made:
        # Stop words are kept, also for phrases: "not" makes a difference in a critique.
        table.create_index("text", config=FTS(with_position=True, remove_stop_words=False))
        for column in ("run", "iteration", "task"):
            table.create_index(column, config=Bitmap())
    table.optimize(cleanup_older_than=KEPT)


def ranked(table: Any, question: IndexQuery) -> pl.DataFrame:
    """Return the rows of a table that answer a question best, with their scores."""
    query = table.search(_full_text(question), query_type="fts")
    if condition := _condition(question):
        query = query.where(condition, prefilter=True)
    columns = [*ROW.names, "_score"]
    found = pl.DataFrame(query.select(columns).limit(question.limit).to_arrow())
    return found.select(pl.col("_score").cast(pl.Float64).alias("score"), *ROW.names)


def _full_text(question: IndexQuery) -> Any:
    """Return the query in LanceDB's terms."""
    from lancedb.query import BooleanQuery, MatchQuery, Occur, PhraseQuery

    # LanceDB's stubs declare options with defaults as required.
    match, phrase = cast("Any", MatchQuery), cast("Any", PhraseQuery)
    words = match(question.words, "text") if question.words else None
    if not question.phrases:
        return words
    phrases = [(Occur.MUST, phrase(text, "text")) for text in question.phrases]
    return BooleanQuery([*phrases, *([(Occur.SHOULD, words)] if words else [])])


def _condition(question: IndexQuery) -> str:
    terms = []
    if question.iteration is not None:
        terms.append(f"iteration = {question.iteration:d}")
    for column, value in (("run", question.run), ("task", question.task)):
        if value is not None:
            escaped = value.replace("'", "''")
            terms.append(f"{column} = '{escaped}'")
    return " AND ".join(terms)
