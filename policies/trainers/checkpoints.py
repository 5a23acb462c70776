"""The files from which a restarted training goes on: its checkpoints and its prepared rows.

A trainer writes its files in place, in no safe order, and its library resumes from half of them
without an error, to other weights. So a checkpoint counts only if it holds everything that a resume
reads, and every byte agrees with its manifest, which is written last and names the job, the step
and the hash of every file. Its pickles are opened only after that check.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ...stores.durable import remove, sync_file, sync_folder, write_file
from ...stores.failpoints import reach
from ...stores.sealed import MANIFEST, files_below, known_sha256
from .work_folder import CACHE, read_json

logger = logging.getLogger(__name__)

PREFIX = "checkpoint-"
NAME = re.compile(rf"{PREFIX}(\d+)")
KEPT = 2
"""The number of whole checkpoints to keep: if the newest is damaged, one is left to resume from."""

REQUIRED: Mapping[str, Sequence[str]] = {
    "the weights": ("*.safetensors", "pytorch_model_fsdp*"),
    "the optimizer's state": ("optimizer.pt", "optimizer.bin", "optimizer_*/*"),
    "the schedule": ("scheduler.pt",),
    "the trainer's state": ("trainer_state.json",),
    "the arguments": ("training_args.bin", "job.json"),
}
"""The files that a resume reads, in their variants: plain, or sharded by FSDP."""

SEAL = "prepared.json"
"""The hashes of the prepared rows."""

Alive = Callable[[], object]
"""Called while files are read: a sign of life."""


class UnfitCheckpointError(RuntimeError):
    """A checkpoint that lacks something a resume needs."""


def seal_checkpoint(
    checkpoint: Path, identity: str, *, processes: int = 1, alive: Alive = lambda: None
) -> None:
    """Make a finished checkpoint durable, then write its manifest.

    `processes` is the number of training processes: each keeps its own random state.

    Raises:
        UnfitCheckpointError: naming the missing file; nothing is sealed.
    """
    full = [name for name, path in files_below(checkpoint) if path.stat().st_size]
    if missing := _lacking(full, processes):
        raise UnfitCheckpointError(f"{checkpoint} cannot be resumed from: it lacks {missing}")
    for _, path in files_below(checkpoint):
        sync_file(path)
        alive()
    for folder in (checkpoint, *(p for p in checkpoint.rglob("*") if p.is_dir())):
        sync_folder(folder)
    manifest = {
        "identity": identity,
        "step": checkpoint_step(checkpoint),
        "files": describe_files(checkpoint, alive),
    }
    write_file(checkpoint / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    sync_folder(checkpoint.parent)


def keep(
    checkpoint: Path, identity: str, *, processes: int = 1, alive: Alive = lambda: None
) -> None:
    """Seal a checkpoint, and remove those that are older than the newest `KEPT`.

    A checkpoint that cannot be resumed from is removed, and training continues.
    """
    reach("trainer.checkpoint.saved")
    try:
        seal_checkpoint(checkpoint, identity, processes=processes, alive=alive)
    except UnfitCheckpointError as error:
        logger.warning("%s; removing it", error)
        remove(checkpoint)
        return
    reach("trainer.checkpoint.sealed")
    retain(checkpoint.parent, identity)


def _lacking(names: Sequence[str], processes: int) -> str:
    missing = [
        what
        for what, patterns in REQUIRED.items()
        if not any(fnmatch(name, pattern) for name in names for pattern in patterns)
    ]
    ranks = [""] if processes == 1 else [f"_{rank}" for rank in range(processes)]
    missing += sorted({f"rng_state{rank}.pth" for rank in ranks} - set(names))
    return ", ".join(missing)


def is_whole(checkpoint: Path, identity: str) -> bool:
    """Return whether a checkpoint was sealed by the same job, under its name, and is unchanged."""
    manifest = read_json(checkpoint / MANIFEST)
    return (
        manifest is not None
        and manifest.get("identity") == identity
        and manifest.get("step") == checkpoint_step(checkpoint)
        and agrees(checkpoint, manifest.get("files"))
    )


def newest_whole(checkpoints: Path, identity: str) -> Path | None:
    """Return the newest whole checkpoint of this job, or None for a fresh start."""
    return next((c for c in newest_first(checkpoints) if is_whole(c, identity)), None)


def discard_unfit(checkpoints: Path, identity: str) -> list[Path]:
    """Remove the checkpoints that are not whole or not of this job, and return them.

    A trainer that reaches the same step again would write into the old folder.
    """
    unfit = [c for c in newest_first(checkpoints) if not is_whole(c, identity)]
    for checkpoint in unfit:
        remove(checkpoint)
    return unfit


def retain(checkpoints: Path, identity: str) -> list[Path]:
    """Remove and return this job's checkpoints that are older than the newest `KEPT` whole ones.

    Before any removal, every byte of the kept checkpoints is compared with their manifests. Other
    jobs' checkpoints and folders that are not sealed are not touched.
    """
    kept, removed = list[Path](), list[Path]()
    for checkpoint in newest_first(checkpoints):
        manifest = read_json(checkpoint / MANIFEST) or {}
        if len(kept) < KEPT:
            kept += [checkpoint] if is_whole(checkpoint, identity) else []
        elif manifest.get("identity") == identity:
            remove(checkpoint)
            removed.append(checkpoint)
    return removed


def is_sealed(checkpoint: Path) -> bool:
    """Return whether a checkpoint was finished; its bytes are not read."""
    return (checkpoint / MANIFEST).is_file()


def newest_first(checkpoints: Path) -> list[Path]:
    """Return the folders with names of checkpoints, by step; links are skipped."""
    found = [p for p in checkpoints.glob(f"{PREFIX}*") if NAME.fullmatch(p.name)]
    folders = [p for p in found if p.is_dir() and not p.is_symlink()]
    return sorted(folders, key=checkpoint_step, reverse=True)


def checkpoint_step(checkpoint: Path) -> int:
    """Return the optimizer step at which a checkpoint was made."""
    return int(checkpoint.name.removeprefix(PREFIX))


def describe_files(folder: Path, alive: Alive = lambda: None) -> dict[str, Any]:
    """Return size and hash of every file under `folder`, by relative name, without the manifest."""
    return {
        name: {"size": path.stat().st_size, "sha256": known_sha256(path, alive)}
        for name, path in files_below(folder)
    }


def agrees(folder: Path, files: object) -> bool:
    """Return whether `folder` holds exactly the `files` described, byte for byte."""
    return bool(files) and describe_files(folder) == files


def seal_prepared(work: Path, identity: str) -> None:
    """Seal the tokenized rows and the reference log-probabilities, which may have taken hours."""
    sealed = {"identity": identity, "files": describe_files(work / CACHE)}
    write_file(work / SEAL, json.dumps(sealed, indent=1).encode())


def discard_unsealed(work: Path, identity: str) -> None:
    """Remove the prepared rows, unless they are whole and of this job."""
    seal = read_json(work / SEAL) or {}
    if seal.get("identity") != identity or not agrees(work / CACHE, seal.get("files")):
        discard_prepared(work)


def discard_prepared(work: Path) -> None:
    """Remove the prepared rows, and their seal."""
    (work / SEAL).unlink(missing_ok=True)
    shutil.rmtree(work / CACHE, ignore_errors=True)
