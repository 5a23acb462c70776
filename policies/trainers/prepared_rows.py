"""What a trainer prepares before its first step: tokenized rows, the reference's log-probabilities.

On a large model that may take as long as an allocation lasts. So it outlives the process that made
it: it is sealed once it is complete, and used again as long as every byte of it agrees.
"""

import json
import shutil

from ...stores.durable import write_file
from .trainer_checkpoints import agrees, describe_files
from .trainer_job import TrainJob, read_json

CACHE = "cache"
"""The folder in the work folder where `datasets` keeps what is prepared."""
SEAL = "prepared.json"


def seal_prepared(job: TrainJob, identity: str) -> None:
    """Say that all is prepared, by the hash of each file."""
    sealed = {"identity": identity, "files": describe_files(job.folder(CACHE))}
    write_file(job.folder(SEAL), json.dumps(sealed, indent=1).encode())


def discard_unsealed(job: TrainJob, identity: str) -> None:
    """Remove what was prepared, unless it is whole and of this job."""
    seal = read_json(job.folder(SEAL)) or {}
    if seal.get("identity") != identity or not agrees(job.folder(CACHE), seal.get("files")):
        discard_prepared(job)


def discard_prepared(job: TrainJob) -> None:
    """Remove what was prepared, and its seal."""
    job.folder(SEAL).unlink(missing_ok=True)
    shutil.rmtree(job.folder(CACHE), ignore_errors=True)
