# pyright: basic
"""The digest of a run: one hash over all rows of its loop, independent of order and files.

The SHA-256 hashes of a table's rows are summed modulo 2**256, so neither the order nor the cut into
parts matters, and duplicate rows do not cancel. Telemetry (seconds, retries, tokens, events) is not
part of it. Measurements outside the loop have separate digests.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import pyarrow as pa

from .journal_reader import Reader
from .keys import canonical_json, digest
from .side_evals import side_eval_of
from .stage_files import read_committed

MODULUS = 1 << 256
AT_ONCE = 8192


def run_digest(folder: Path) -> str:
    """Return the digest (hex, 64 characters) of the loop's rows of the run at `folder`.

    Raises:
        DamagedError: if a file is missing or altered.
    """
    with closing(Reader(folder)) as journal:
        return _digest(journal, None)


def side_eval_digests(folder: Path) -> dict[str, str]:
    """Return the digest of each benchmark that was measured outside the loop.

    Raises:
        DamagedError: if a file is missing or altered.
    """
    with closing(Reader(folder)) as journal:
        found = {side_eval_of(state.stage) or "" for state in journal.stages()}
        return {name: _digest(journal, name) for name in sorted(found) if name}


def _digest(journal: Reader, benchmark: str | None) -> str:
    """Return the digest of a benchmark measured outside the loop, or of the loop."""
    sums, counts = Counter[str](), Counter[str]()
    for table, rows in read_committed(journal, stages=lambda s: side_eval_of(s) == benchmark):
        if not len(rows):
            continue  # an empty table counts like an absent one
        for text in canonical_rows(rows):
            hashed = hashlib.sha256(text.encode()).digest()
            sums[table] = (sums[table] + int.from_bytes(hashed)) % MODULUS
        counts[table] += len(rows)
    return digest([[table, counts[table], f"{sums[table]:064x}"] for table in sorted(counts)])


def canonical_rows(rows: pa.Table) -> Iterator[str]:
    """Yield the result of `keys.canonical_json` for each row, built by column for speed."""
    names = sorted(rows.column_names)
    for batch in rows.to_batches(AT_ONCE):
        columns = [_texts(name, batch.column(name)) for name in names]
        for texts in zip(*columns, strict=True):
            yield "{" + ",".join(texts) + "}"


def _texts(name: str, column: pa.Array) -> Iterator[str]:
    """Yield a column's values as JSON, each preceded by the column's name."""
    begin = f"{json.dumps(name)}:"
    null = f"{begin}null"
    encode = _ENCODERS.get(column.type, canonical_json)
    for value in column.to_pylist():
        yield (begin + encode(value)) if value is not None else null


_ENCODERS: Mapping[pa.DataType, Callable[[Any], str]] = {
    pa.string(): encode_basestring,
    pa.int64(): int.__repr__,
}
