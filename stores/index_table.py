# pyright: basic
"""One table of the search index in LanceDB: its columns, its indices, queries on it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import polars as pl
import pyarrow as pa

MANY_VECTORS = 100_000
"""From this many rows on, vectors get an approximate index; fewer are compared one by one."""

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
class Vectors:
    """The embedder of an index's vectors: name, settings, hash of its weights, maximum length."""

    kind: str
    model: str
    model_name: str | None
    identity: str
    max_tokens: int
    dims: int

    @property
    def maker(self) -> tuple[str, str, int]:
        """What the vectors depend on; the path of the weights is not part of it."""
        return self.kind, self.identity, self.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A query: any of the words, all of the phrases, a vector; a field that is None is not used.

    With both text and a vector the two rankings are merged.
    """

    table: str
    words: str = ""
    phrases: tuple[str, ...] = ()
    vector: tuple[float, ...] | None = None
    run: str | None = None
    iteration: int | None = None
    task: str | None = None
    limit: int = 20


def finish(table: Any, *, vectors: bool) -> None:
    """Index a table's new rows; the first time, all rows."""
    from lancedb.index import FTS, Bitmap, IvfPq

    made = {index.name for index in table.list_indices()}
    rows = table.count_rows()
    if rows and "text_idx" not in made:
        # Stop words are kept, also for phrases: "not" makes a difference in a critique.
        table.create_index("text", config=FTS(with_position=True, remove_stop_words=False))
        for column in ("run", "iteration", "task"):
            table.create_index(column, config=Bitmap())
    if vectors and rows >= MANY_VECTORS and "vector_idx" not in made:
        table.create_index("vector", config=IvfPq(distance_type="cosine"))
    table.optimize(cleanup_older_than=KEPT)


def ranked(table: Any, question: IndexQuery) -> pl.DataFrame:
    """Return the rows of a table that answer a question best, with their scores."""
    text = _full_text(question)
    if question.vector is None:
        score, query = "_score", table.search(text, query_type="fts")
    elif text is None:
        score, query = "_distance", table.search(list(question.vector), query_type="vector")
    else:
        score = "_relevance_score"
        query = table.search(query_type="hybrid").vector(list(question.vector)).text(text)
    if question.vector is not None:
        query = query.distance_type("cosine")
    if condition := _condition(question):
        query = query.where(condition, prefilter=True)
    columns = [*ROW.names, *(() if score == "_relevance_score" else (score,))]
    found = pl.DataFrame(query.select(columns).limit(question.limit).to_arrow())
    value = 1 - pl.col(score) if score == "_distance" else pl.col(score)
    return found.select(value.cast(pl.Float64).alias("score"), *ROW.names)


def _full_text(question: IndexQuery) -> Any:
    """Return the query in LanceDB's terms, or None if there are no words."""
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
