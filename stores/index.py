# pyright: basic
"""The search index of a lake: candidates, critiques and prompts, by their words.

It is kept in LanceDB and is not a source of truth: the folder can be deleted, and is rebuilt from
the runs' parts. One process writes. Each row names its part; a part counts as indexed once it is
in the table of parts, which is written after the rows. Before rows are added, their parts are
noted in a file: after a crash the next writer removes their rows, so no row is there twice.

LAKE/index: index.json (format), pending.json, run.lock, tables/ (LanceDB).
"""

import hashlib
import json
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa

from .durable import make_folder, remove, write_file
from .installation import pip_install
from .journal_reader import Part
from .keys import canonical_json
from .lock import acquire, release

FOLDER = "index"
FORMAT = 2
FACTS = "index.json"
PENDING = "pending.json"
TABLES = "tables"
PARTS = "parts"
SEARCHED = ("candidates", "critiques", "prompts")
DELETED_AT_ONCE = 1000

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
_PART = pa.schema([("key", pa.string())])


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


class IndexUnusableError(RuntimeError):
    """A search index that is absent, damaged or made differently; the message has a remedy."""

    code = "LPF-209"


def index_folder(lake: Path) -> Path:
    """Return the folder of a lake's index."""
    return lake / FOLDER


def part_key(run: str, part: Part) -> str:
    """Return the key of one run's part in the index; its rows carry it."""
    text = f"{run}\0{part.table}\0{part.unit}\0{part.sha256}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Index:
    """Read access to an index; safe while another process writes."""

    def __init__(self, folder: Path) -> None:
        """Open the index.

        Raises:
            IndexUnusableError: if it does not exist or cannot be read.
        """
        self.folder = folder
        _check_format(folder)
        with _readable(folder):
            self._db = _connect(folder)

    def indexed_parts(self) -> frozenset[str]:
        """Return the keys of the parts that are indexed."""
        with _readable(self.folder):
            parts = self._db.open_table(PARTS)
            return frozenset(parts.search().select(["key"]).to_arrow()["key"].to_pylist())

    def count(self, table: str) -> int:
        """Return how many rows of a table are indexed."""
        with _readable(self.folder):
            return self._db.open_table(table).count_rows()

    def search(self, question: IndexQuery) -> pl.DataFrame:
        """Return the best rows with a score; higher is better.

        Raises:
            IndexUnusableError: if the index is damaged.
        """
        with _readable(self.folder):
            found = _rank(self._db.open_table(question.table), question)
        return found.drop("part")


class IndexWriter(Index):
    """The one process that changes an index."""

    def __init__(self, folder: Path) -> None:
        """Open the index, whose lock the caller holds, and clean up after a crash.

        Raises:
            IndexUnusableError: if it cannot be read.
        """
        super().__init__(folder)
        self._drop_pending()

    def add(self, table: str, keys: Sequence[str], rows: pa.Table) -> None:
        """Add the rows of whole parts, exactly once even if the process is killed."""
        self._note(keys)
        with _readable(self.folder):
            self._db.open_table(table).add(rows.select(ROW.names).cast(ROW))
        self._record(keys)
        (self.folder / PENDING).unlink()

    def forget(self, keys: Collection[str]) -> None:
        """Remove the rows of parts that were removed from a journal."""
        self._note(sorted(keys))
        with _readable(self.folder):
            for chosen in _in_groups("key", sorted(keys)):
                self._db.open_table(PARTS).delete(chosen)
        self._drop_pending()

    def finish(self) -> None:
        """Update the indices on words, so that a search need not scan every row."""
        with _readable(self.folder):
            for name in SEARCHED:
                _finish(self._db.open_table(name))
            self._db.open_table(PARTS).optimize(cleanup_older_than=KEPT)

    def _note(self, keys: Sequence[str]) -> None:
        """Note which parts are being added or removed, for the next writer after a crash."""
        write_file(self.folder / PENDING, json.dumps(list(keys)).encode())

    def _record(self, keys: Sequence[str]) -> None:
        """Mark parts as indexed."""
        with _readable(self.folder):
            self._db.open_table(PARTS).add(pa.table({"key": list(keys)}, schema=_PART))

    def _drop_pending(self) -> None:
        """Remove the rows of parts whose adding or removing a crash interrupted."""
        note = self.folder / PENDING
        if not note.exists():
            return
        left = sorted(set(json.loads(note.read_bytes())) - self.indexed_parts())
        with _readable(self.folder):
            for chosen in _in_groups("part", left):
                for name in SEARCHED:
                    self._db.open_table(name).delete(chosen)
        note.unlink()


@contextmanager
def writing(lake: Path) -> Generator[IndexWriter]:
    """Lock and open a lake's index; create it if it is absent.

    Raises:
        LockedError: if another process writes it.
        IndexUnusableError: if it cannot be read.
    """
    _need_lancedb()
    folder = index_folder(lake)
    if folder.exists() and not folder.is_dir():
        raise IndexUnusableError(f"{folder} is not a folder: move it away for the search index")
    lock = acquire(make_folder(folder), f"the search index of {lake}")
    try:
        if not is_there(folder):
            _create(folder)
        yield IndexWriter(folder)
    finally:
        release(lock)


def is_there(folder: Path) -> bool:
    """Whether an index exists: its facts are written last."""
    return (folder / FACTS).is_file()


def _need_lancedb() -> None:
    if find_spec("lancedb") is None:
        raise IndexUnusableError(f"searching needs LanceDB: {pip_install('lancedb')}")


def _connect(folder: Path) -> Any:
    _need_lancedb()
    import lancedb

    return lancedb.connect(folder / TABLES)


@contextmanager
def _readable(folder: Path) -> Generator[None]:
    """Turn LanceDB's errors about damaged files into one sentence."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, LookupError, OSError) as error:
        if isinstance(error, IndexUnusableError):
            raise
        message = str(error).partition("\n")[0][:200]
        raise IndexUnusableError(
            f"the search index {folder} cannot be used ({message}): remove this folder; the next "
            "`lpfloop search` makes it again"
        ) from error


def _check_format(folder: Path) -> None:
    """Require that an index is there and of this format.

    Raises:
        IndexUnusableError: if the index does not exist, or is not of this format.
    """
    if not is_there(folder):
        raise IndexUnusableError(f"no search index at {folder}: `lpfloop search` makes it")
    with _readable(folder):
        facts: dict[str, Any] = json.loads((folder / FACTS).read_bytes())
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is {facts['format']}, this lpfloop writes {FORMAT}")


def _create(folder: Path) -> None:
    """Make an empty index, removing first what a killed process left."""
    if (folder / TABLES).exists():
        remove(folder / TABLES)
    db = _connect(folder)
    for name in SEARCHED:
        db.create_table(name, schema=ROW)
    db.create_table(PARTS, schema=_PART)
    write_file(folder / FACTS, canonical_json({"format": FORMAT}).encode())


def _in_groups(column: str, keys: Sequence[str]) -> Generator[str]:
    """Yield SQL conditions on these keys, each short enough for one query."""
    for start in range(0, len(keys), DELETED_AT_ONCE):
        named = ", ".join(f"'{key}'" for key in keys[start : start + DELETED_AT_ONCE])
        yield f"{column} IN ({named})"


def _finish(table: Any) -> None:
    """Index a table's new rows; the first time, all rows."""
    from lancedb.index import FTS, Bitmap

    made = {index.name for index in table.list_indices()}
    if table.count_rows() and "text_idx" not in made:
        # Stop words are kept, also for phrases: "not" makes a difference in a critique.
        table.create_index("text", config=FTS(with_position=True, remove_stop_words=False))
        for column in ("run", "iteration", "task"):
            table.create_index(column, config=Bitmap())
    table.optimize(cleanup_older_than=KEPT)


def _rank(table: Any, question: IndexQuery) -> pl.DataFrame:
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
