# pyright: basic
"""The digest of a run: one hash over all its rows, whatever their order or the files they lie in.

Each row's SHA-256 is summed modulo 2**256 with those of its table, so neither order nor the cut
into parts matters, and a row that is there twice does not vanish. Telemetry (seconds, retries,
tokens, events) is not part of it.
"""

import hashlib
from collections import Counter
from pathlib import Path

from .journal_reader import Reader
from .keys import canonical_json, digest
from .lake import part_path
from .sealed import read_part

MODULUS = 1 << 256


def run_digest(folder: Path) -> str:
    """Return the digest (hex, 64 characters) of the run at `folder`.

    Raises:
        DamagedError: if a part is missing or altered.
    """
    journal = Reader(folder)
    sums, counts = Counter[str](), Counter[str]()
    for part in journal.parts():
        path = part_path(folder, part.table, part.sha256)
        for row in read_part(path, part.sha256).to_pylist():
            hashed = hashlib.sha256(canonical_json(row).encode()).digest()
            sums[part.table] = (sums[part.table] + int.from_bytes(hashed)) % MODULUS
            counts[part.table] += 1
    journal.close()
    return digest([[table, counts[table], f"{sums[table]:064x}"] for table in sorted(counts)])
