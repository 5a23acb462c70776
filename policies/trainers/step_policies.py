"""Policies that an online training publishes between its steps.

Each has a folder in the work folder. The weights of a step are sealed there before its rows are
reported, and before a checkpoint of the step: a killed training either resumes from a whole
checkpoint, or makes the step again. Finishing a policy (rounding, canary) needs the memory that the
training uses, so it follows the last step. Imports no model library.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from ...configs.methods import SteppedTraining
from ...stores.durable import link, make_folder, publish_folder, remove
from ...stores.sealed import MANIFEST, DamagedError, check_folder, file_sha256, known_sha256
from ..engines.canary import CANARY
from .job import TrainJob

FOLDER = "published"
SAVED, POLICY, DRAFT = "weights", "policy", "draft"
"""The sealed weights as the trainer saved them, the finished model, and the unsealed draft."""


def published_steps(settings: object, steps: int) -> range:
    """Return the steps of a training after which a policy is published, without the last step."""
    every = settings.publish_every if isinstance(settings, SteppedTraining) else 0
    return range(every, steps, every) if every else range(0)


def step_job(job: TrainJob, step: int) -> TrainJob:
    """Return a job with the folders of a step's policy."""
    return replace(job, output=job.folder(FOLDER) / str(step))


def step_draft(job: TrainJob, step: int) -> Path:
    """Return the folder that the weights of a step are saved in."""
    return step_job(job, step).folder(DRAFT)


def clear_draft(job: TrainJob, step: int) -> None:
    """Empty the folder that the weights of a step are saved in."""
    part = step_job(job, step)
    if part.output.exists():
        remove(part.output)
    make_folder(part.folder(DRAFT))


def seal_draft(job: TrainJob, step: int) -> None:
    """Make the saved weights of a step durable."""
    part = step_job(job, step)
    publish_folder(step_draft(job, step), part.output, SAVED)


def lacking(job: TrainJob, steps: range) -> list[int]:
    """Return the steps among these that left neither whole weights nor a finished policy."""

    def left(part: TrainJob) -> bool:
        return finished_policy(part) is not None or _is_whole(part.folder(SAVED))

    return [step for step in steps if not left(step_job(job, step))]


def seal_policy(part: TrainJob) -> None:
    """Make a step's finished policy durable, under the hash of its files."""
    publish_folder(part.folder("model"), make_folder(part.folder(POLICY)))


def finished_policy(part: TrainJob) -> Path | None:
    """Return the folder of a step's finished policy, named by its hash, or None."""
    found = part.folder(POLICY).glob("*")
    return next((folder for folder in found if _is_whole(folder, folder.name)), None)


def is_finished(job: TrainJob, step: int, canary: object) -> bool:
    """Return whether a step's policy is whole, and its canary has this hash."""
    part = step_job(job, step)
    path = part.folder(CANARY)
    return finished_policy(part) is not None and path.exists() and file_sha256(path) == canary


def publish_step(job: TrainJob, step: int, parent: Path) -> str:
    """Link a step's finished policy into `parent`; return its name.

    It stays in the work folder, too: without it the training would not count as finished.

    Raises:
        DamagedError: if the step has no whole policy.
    """
    policy = finished_policy(step_job(job, step))
    if policy is None:
        raise DamagedError(f"{job.output} holds no whole policy of step {step}")
    link(policy, parent / policy.name)
    return policy.name


def _is_whole(folder: Path, identity: str | None = None) -> bool:
    try:
        manifest = (folder / MANIFEST).read_bytes()
        known = identity or hashlib.sha256(manifest).hexdigest()
        check_folder(folder, known, sha256=known_sha256)
    except OSError:
        return False
    return True
