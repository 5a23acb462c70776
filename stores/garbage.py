# pyright: basic
"""Garbage collection: files in a run's folder that nothing refers to, and old checkpoints.

The journal decides which files may be removed, each with a reason. The weights of an old checkpoint
are removed only on request, and never those of the newest or best checkpoint, or of the one that
the next iteration begins with. A removed checkpoint's row, and all rows made with it, stay.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .journal import Journal
from .journal_reader import FILES, Reader
from .lake import CANARIES, CHECKPOINTS, COLLECTED, QUARANTINE, RunReader
from .lock import unread
from .objects import Objects, objects_of
from .run_lease import FEW
from .sealed import size_of
from .stage_files import MODELS, add_remedy, read_trained

UNCOMMITTED = "no unit refers to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that may be removed, and the reason.

    `checkpoint`: its weights are lost with it. `rows`: it held rows, so an open reader may still
    need it.
    """

    path: Path
    size: int
    reason: str
    checkpoint: bool = False
    rows: bool = False


def garbage(journal: Reader, *, keep: int | None = None) -> list[Garbage]:
    """Return the garbage; with `keep`, also the weights of all but the newest checkpoints.

    With `keep` it includes the intermediate policies of trainings that did not become an M_t.

    Raises:
        ValueError: if `keep` is below 1: the newest checkpoint is the policy.
    """
    if keep is not None and keep < 1:
        raise ValueError("at least one checkpoint must be kept: the newest is the policy")
    return [*_unreferenced_folders(journal), *([] if keep is None else _old(journal, keep))]


def collect(journal: Journal, found: Sequence[Garbage]) -> list[Garbage]:
    """Remove garbage and return the removed pieces; files of rows stay while the run is read.

    The loss of a checkpoint's weights is recorded before they are removed.

    Raises:
        TakenOverError: if another machine has taken the run over; the remaining garbage stays then.
        OutOfReachError: if the bucket does not answer.
    """
    objects = objects_of(journal.folder)
    keeper = journal.keeper
    if keeper is not None:
        keeper.take_snapshot()  # Earlier ones may refer to files that are garbage now.
    with unread(journal.folder) as free:
        gone = [piece for piece in found if piece.rows and free]
        # Files that this journal does not list may be another machine's rows.
        for first in range(0, len(gone), FEW):
            if keeper is not None:
                keeper.require_head()
            objects.discard([piece.path for piece in gone[first : first + FEW]])
    for piece in found:
        if piece.rows:
            continue
        if keeper is not None:
            keeper.require_head()
        if piece.checkpoint:
            journal.record(COLLECTED, f"{CHECKPOINTS}/{piece.path.name}")
        objects.remove(piece.path)
        gone.append(piece)
    return gone


def published_policies(journal: Reader) -> list[str]:
    """Return the ids of the policies M_t that were trained here, oldest first."""
    return [
        row["checkpoint_id"] for row in _models(journal, CHECKPOINTS) if row.get("at_step") is None
    ]


def _models(journal: Reader, table: str) -> list[dict[str, Any]]:
    """Return the rows of the models of a table that were trained here, oldest first."""
    rows = list[dict[str, Any]]()
    for part in journal.parts(table=table):
        with add_remedy(journal.folder):
            rows += read_trained(journal, part).to_dicts()
    return rows


def _unreferenced_folders(journal: Reader) -> Iterator[Garbage]:
    folder = journal.folder
    files = {f.path(folder) for f in journal.files() if f.sealed}
    objects = objects_of(folder)
    for path, size in objects.sizes(folder / FILES).items():
        if path not in files:
            yield Garbage(path=path, size=size, reason=UNCOMMITTED, rows=True)
    known = {row[name] for table, name in MODELS.items() for row in _models(journal, table)}
    for place in (*MODELS, CANARIES):
        for path, size in _inside(objects, folder / place):
            if path.name not in known:
                reason = "no unit refers to it: it was published, and not committed"
                yield Garbage(path=path, size=size, reason=reason)
    pending = set(journal.damaged_units())
    for path, size in _inside(objects, folder / QUARANTINE):
        if not pending:
            reason = "it was damaged, and what it held was made again"
            yield Garbage(path=path, size=size, reason=reason)
    for path in sorted((folder / "work").iterdir()):
        if journal.is_done(path.name):
            yield Garbage(path=path, size=size_of(path), reason="its training is published")


def _old(journal: Reader, keep: int) -> Iterator[Garbage]:
    # Includes weights that a killed collection recorded as removed, but did not remove.
    needed = _needed_checkpoints(journal)
    policies = published_policies(journal)
    reasons = dict.fromkeys(policies[:-keep], f"older than the newest {keep}")
    for row in _models(journal, CHECKPOINTS):
        if row["checkpoint_id"] not in policies:
            reasons[row["checkpoint_id"]] = "published during training, and not chosen"
    for name, reason in reasons.items():
        if name in needed:
            continue
        path = journal.folder / CHECKPOINTS / name
        size = sum(objects_of(journal.folder).sizes(path).values())
        if size:
            yield Garbage(path=path, size=size, reason=reason, checkpoint=True)


def _needed_checkpoints(journal: Reader) -> set[str]:
    """Return the checkpoints that the last verdict names: the best, and the next start."""
    with closing(RunReader(journal.folder)) as run:
        last = run.scan("standings").sort("iteration").tail(1).collect()
    return {*last["best_id"].to_list(), *last["next_id"].to_list()}


def _inside(objects: Objects, folder: Path) -> list[tuple[Path, int]]:
    """Return path and size of each entry of a folder, on disk or in the bucket."""
    found = {path: size_of(path) for path in folder.glob("*")}
    there = Counter[Path]()
    for path, size in objects.sizes(folder).items():
        there[folder / path.relative_to(folder).parts[0]] += size
    return sorted({**found, **there}.items())
