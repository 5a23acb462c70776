# pyright: basic
"""What makes a training impossible, found before anything is started or loaded."""

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from ...configs.group_methods import OnlineSettings
from ...configs.methods import PPOTraining
from ..engines.weight_files import weight_files
from .step_files import planned_steps
from .step_policies import published_steps
from .trainer_checkpoints import KEPT
from .trainer_faults import TrainingError
from .trainer_job import SETTINGS, TrainJob
from .training_fit import TrainingFit

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""

CHECKPOINTED = {"adamw": 12, "adamw_8bit": 6}
"""A checkpoint's bytes for each trained weight: itself and its moments, four bytes each or one.

A bfloat16 weight has the rest of a float32 beside it."""

MATRIX = 2
"""Dimensions of a linear layer's weights."""

BLOCK = re.compile(r"\.\d+\.")
"""What stands in the name of a layer of which each block has one."""


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
    if job.processes % job.fit.nodes:
        raise TrainingError(
            "refused",
            f"{job.processes} processes cannot be shared evenly by {job.fit.nodes} nodes",
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
    refuse_missing_layers(job.fit, job.model)


def refuse_missing_layers(fit: TrainingFit, model: Path) -> None:
    """Refuse adapters on layers that are not among a model's.

    Raises:
        TrainingError: of kind `refused`, naming the layers there are.
    """
    targets = fit.lora.targets
    if not fit.adapts or isinstance(targets, str):
        return
    layers = linear_layers(model)
    for target in targets:
        if not any(_is_named(layer, (target,)) for layer in layers):
            there = sorted({layer.rpartition(".")[2] for layer in layers})
            raise TrainingError(
                "refused",
                f"training.lora.targets names {target!r}, and {model} has no such linear layer in "
                f"its blocks; there are {', '.join(there)}",
            )


def linear_layers(model: Path) -> dict[str, tuple[int, int]]:
    """Return the shape of each linear layer of a model's blocks, by their files' headers."""
    return {
        name.removesuffix(".weight"): (entry["shape"][0], entry["shape"][1])
        for name, entry in tensor_headers(model).items()
        if name.endswith(".weight") and len(entry["shape"]) == MATRIX and BLOCK.search(name)
    }


def adapter_parameters(fit: TrainingFit, model: Path) -> int:
    """Return the number of weights of the adapters on a model."""
    targets = fit.lora.targets
    return sum(
        fit.lora.r * sum(shape)
        for layer, shape in linear_layers(model).items()
        if isinstance(targets, str) or _is_named(layer, targets)
    )


def _is_named(layer: str, targets: tuple[str, ...]) -> bool:
    """Return whether peft would put adapters onto a layer: by its name, or how that ends."""
    return any(layer == target or layer.endswith(f".{target}") for target in targets)


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
    rows = sum(pq.read_metadata(p).num_rows for p in job.data)
    s = job.settings
    if isinstance(s, OnlineSettings):
        steps, read = planned_steps(rows, s), True
    else:
        steps, read = math.ceil(math.ceil(rows / s.batch_size) * s.epochs), False
    value = job.value_source if isinstance(s, PPOTraining) else None
    least = training_bytes(job.fit, job.model, steps, value=value, read=read)
    return least + len(published_steps(s, steps)) * model_bytes(job.fit, job.model)


def training_bytes(
    fit: TrainingFit, model: Path, steps: int, *, value: Path | None = None, read: bool = False
) -> int:
    """Return the peak bytes of the files of a training of `steps` steps.

    `value` is the folder that a value model begins as; `read`: a sampler reads the weights from the
    work folder.
    """
    trained = trained_parameters(fit, model)
    if value is not None:
        trained += trained if fit.adapts else parameters(value)
    # Each step but the last may end in one; a new one is complete before an old one is removed.
    checkpoints = min(max(0, steps - 1), KEPT + 1)
    copies = parameters(model) * published_bytes(fit) if read else 0
    states = CHECKPOINTED[fit.optimizer] * trained * checkpoints
    return model_bytes(fit, model) + copies + states


def trained_parameters(fit: TrainingFit, model: Path) -> int:
    """Return the number of weights that a training of a model changes: all, or its adapters'."""
    return adapter_parameters(fit, model) if fit.adapts else parameters(model)


def model_bytes(fit: TrainingFit, model: Path) -> int:
    """Return the bytes of a published model, its adapters beside it."""
    adapters = FLOAT32 * adapter_parameters(fit, model) if fit.adapts else 0
    return parameters(model) * published_bytes(fit) + adapters


def published_bytes(fit: TrainingFit) -> int:
    """Return the bytes of a weight while it is published, the most that there may be.

    Weights that were all trained are saved in float32; what is rounded lies beside them. Those with
    adapters merged into them are saved once.
    """
    rounded = BFLOAT16 if fit.publish in ("bfloat16", "float16") else 0
    return (rounded or FLOAT32) if fit.adapts else FLOAT32 + rounded


def parameters(model: Path) -> int:
    """Return the number of weights in a folder of safetensors files, by their headers."""
    return sum(math.prod(entry["shape"]) for entry in tensor_headers(model).values())


def tensor_headers(model: Path) -> dict[str, Mapping[str, list[int]]]:
    """Return the header of each tensor of a model."""
    return {
        name: entry
        for path in weight_files(model)
        for name, entry in header(path).items()
        if name != "__metadata__"
    }


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
