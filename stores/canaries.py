"""The proofs of trained weights, stored next to them under the weights' name.

The name does not depend on the proof, so the journal holds the proof's hash as a fact. Runs of
older versions lack this fact; their proofs are not checked.
"""

from collections.abc import Iterator
from pathlib import Path

from .address import run_argument
from .journal import Journal
from .journal_reader import Reader
from .objects import objects_of
from .sealed import DamagedError
from .stage_files import REMEDY

CANARIES = "canaries"


def remember_canary(journal: Journal, path: Path, sha256: str) -> None:
    """Note the hash of a proof."""
    journal.set_meta([(_fact(path), sha256)])


def canary_sha256(journal: Reader, path: Path) -> str | None:
    """Return the hash that a proof must have, if the journal has it."""
    return journal.meta(_fact(path))


def altered_canaries(journal: Reader, model: str) -> Iterator[tuple[Path, str]]:
    """Yield the altered proofs of a model, each with a description of the damage."""
    objects = objects_of(journal.folder)
    for path in objects.files(journal.folder / CANARIES / model):
        expected = canary_sha256(journal, path)
        if expected is not None and objects.sha256(path) != expected:
            yield path, f"{objects.at(path)} was altered: the journal has another hash"


def require_canaries(journal: Reader, model: str) -> None:
    """Refuse altered proofs of a model.

    Raises:
        DamagedError: naming the file.
    """
    for _, reason in altered_canaries(journal, model):
        raise DamagedError(
            f"{reason}; `lpfloop lake repair {run_argument(journal.folder)}` {REMEDY}"
        )


def _fact(path: Path) -> str:
    return "/".join((CANARIES, *path.parts[-2:]))
