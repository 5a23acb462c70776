# pyright: basic
"""What makes a training impossible, found before anything is started or loaded."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from ...configs.methods import PPOTraining, QuarkTraining
from ..engines.weight_files import weight_files
from .step_files import planned_steps
from .trainer_checkpoints import KEPT
from .trainer_faults import TrainingError
from .trainer_job import SETTINGS, TrainJob

BYTES = {"float32": 4, "bfloat16": 2}
STATES = 3
"""A checkpoint's size in weights: each weight, and AdamW's two moments of it."""


def refuse_unfit(job: TrainJob) -> None:
    """Refuse a job that cannot be trained as configured.

    Raises:
        TrainingError: of kind `refused`.
    """
    s = job.settings
    share = s.micro_batch_size * job.processes
    if s.batch_size % share:
        raise TrainingError(
            "refused",
            f"batch_size {s.batch_size} is not a multiple of processes x micro_batch_size "
            f"({job.processes} x {s.micro_batch_size} = {share})",
        )
    if job.supervised is not None and job.supervised.batch_size % job.processes:
        raise TrainingError(
            "refused",
            f"next_token.batch_size {job.supervised.batch_size} is not a multiple of the "
            f"{job.processes} processes",
        )
    if not isinstance(s, SETTINGS[job.method]):
        raise TrainingError("refused", f"{job.method} cannot be trained with {type(s).__name__}")
    if not job.data:
        raise TrainingError("refused", "there is no data to train on")
    missing = [p for p in job.files if not p.is_file()]
    missing += [p for p in job.folders if not p.is_dir()]
    if missing:
        raise TrainingError("refused", f"{missing[0]} does not exist")


def refuse_full_disk(job: TrainJob) -> None:
    """Refuse a training whose files do not fit beside what its work folder already holds.

    Raises:
        TrainingError: of kind `refused`, with the bytes needed and those free.
    """
    held = sum(p.stat().st_size for p in job.output.rglob("*") if p.is_file())
    missing = needed_bytes(job) - held - shutil.disk_usage(job.output).free
    if missing > 0:
        raise TrainingError(
            "refused",
            f"training {job.model} needs {missing / 1e9:.1f} GB more room in {job.output} for its "
            "checkpoints and its model; make room, then resume",
        )


def needed_bytes(job: TrainJob) -> int:
    """Return the peak bytes of a training's files: the model and its checkpoints."""
    model = parameters(job.model) * BYTES[job.fit.weights]
    rows = sum(pq.read_metadata(p).num_rows for p in job.data)
    s = job.settings
    if isinstance(s, PPOTraining | QuarkTraining):
        steps, copies = planned_steps(rows, s), 2  # the model, and what the sampler reads
    else:
        steps, copies = math.ceil(math.ceil(rows / s.batch_size) * s.epochs), 1
    trained = model
    if isinstance(s, PPOTraining):
        trained += parameters(job.value_source) * BYTES[job.fit.weights]
    # Each step but the last may end in one; a new one is complete before an old one is removed.
    checkpoints = min(steps - 1, KEPT + 1)
    return copies * model + STATES * trained * checkpoints


def parameters(model: Path) -> int:
    """Return the number of weights in a folder of safetensors files, by their headers."""
    shapes = (
        entry["shape"]
        for path in weight_files(model)
        for name, entry in header(path).items()
        if name != "__metadata__"
    )
    return sum(math.prod(shape) for shape in shapes)


def header(path: Path) -> Mapping[str, Mapping[str, list[int]]]:
    """Return the header of a safetensors file: for each tensor its type, shape and place.

    Raises:
        TrainingError: of kind `refused`, when the file has none.
    """
    try:
        with path.open("rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except (ValueError, OverflowError, MemoryError) as error:
        message = f"{path} is no safetensors file ({error}); restore the model's folder"
        raise TrainingError("refused", message) from error
