# pyright: basic
"""Collecting garbage: what a run's folder holds and nothing refers to, and old checkpoints.

What may go is decided from the journal, and each piece says why. The weights of an old checkpoint
are given up only on request, and never those of the newest ones: its row, and everything that was
made with it, stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from .durable import remove
from .journal import Journal
from .journal_reader import Reader
from .lake import CANARIES, CHECKPOINTS, COLLECTED, QUARANTINE, part_path
from .sealed import size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that may go, and why; `checkpoint` if weights are given up with it."""

    path: Path
    size: int
    reason: str
    checkpoint: bool = False


def garbage(journal: Reader, *, keep: int | None = None) -> list[Garbage]:
    """Return what may go; with `keep`, also the weights of all but the newest checkpoints.

    Raises:
        ValueError: if `keep` is below 1: the newest checkpoint is the policy.
    """
    if keep is not None and keep < 1:
        raise ValueError("at least one checkpoint must be kept: the newest is the policy")
    return [*_unreferenced(journal), *([] if keep is None else _old(journal, keep))]


def collect(journal: Journal, found: list[Garbage]) -> None:
    """Remove garbage; that a checkpoint's weights are given up is noted before they go."""
    for piece in found:
        if piece.checkpoint:
            journal.record(COLLECTED, f"{CHECKPOINTS}/{piece.path.name}")
        remove(piece.path)


def published(journal: Reader) -> list[str]:
    """Return the ids of the checkpoints that were trained here, oldest first."""
    ids = list[str]()
    for part in journal.parts(table=CHECKPOINTS):
        path = part_path(journal.folder, part.table, part.sha256)
        rows = pl.read_parquet(path).filter(pl.col("parent_id").is_not_null())
        ids += rows["checkpoint_id"].to_list()
    return ids


def _unreferenced(journal: Reader) -> Iterator[Garbage]:
    folder = journal.folder
    committed = {(part.table, part.sha256) for part in journal.parts()}
    for path in sorted(folder.glob("parts/*/*.parquet")):
        if (path.parent.name, path.stem) not in committed:
            yield _piece(path, "no unit refers to it: it was sealed, and not committed")
    known = set(published(journal))
    for place in (CHECKPOINTS, CANARIES):
        for path in sorted(folder.glob(f"{place}/*")):
            if path.name not in known:
                yield _piece(path, "no unit refers to it: it was published, and not committed")
    owed = set(journal.lost())
    for path in sorted((folder / QUARANTINE).iterdir()):
        if not owed:
            yield _piece(path, "it was damaged, and what it held was made again")
    for path in sorted((folder / "work").iterdir()):
        if journal.is_done(path.name):
            yield _piece(path, "its training is published")


def _old(journal: Reader, keep: int) -> Iterator[Garbage]:
    # Also what a collection noted as given up, if it was killed before it removed it.
    for name in published(journal)[:-keep]:
        path = journal.folder / CHECKPOINTS / name
        if path.exists():
            yield _piece(path, f"older than the newest {keep}", checkpoint=True)


def _piece(path: Path, reason: str, *, checkpoint: bool = False) -> Garbage:
    return Garbage(path=path, size=size_of(path), reason=reason, checkpoint=checkpoint)
