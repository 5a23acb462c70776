# pyright: basic
"""Checks for impossible trainings, before anything is started or loaded.

The nodes and GPUs are checked before a run begins (`require_training_places`, `require_nodes`), the
job's files and the room on the disk before its child starts (`refuse_unfit`, `refuse_full_disk`).
"""

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from ...configs.methods import PPOTraining
from ...configs.mistakes import ConfigError
from ...configs.training import OnlineSettings, TrainingConfig
from ..engines.weight_files import weight_files
from .checkpoints import KEPT
from .job import SETTINGS, Settings, TrainingError, TrainJob
from .launch import bare_environment, on_nodes, processes_of, training_gpus
from .process import ENDING_S, STARTING_S, kill_on_exit, start
from .step_files import planned_steps
from .step_policies import published_steps
from .training_fit import TrainingFit

ALLOCATED = "SLURM_JOB_NUM_NODES"
"""The variable with the number of nodes of the allocation."""

CHECKPOINTED = {"adamw": 12, "adamw_8bit": 6}
"""A checkpoint's bytes for each trained weight: itself and its moments, four bytes each or one."""

MATRIX = 2
"""Dimensions of a linear layer's weights."""

BLOCK = re.compile(r"\.\d+\.")
"""Part of the name of a layer of which each block has one."""


def require_training_places(training: TrainingConfig, methods: Iterable[str]) -> None:
    """Refuse trainings by `methods` that this machine cannot run.

    Raises:
        ConfigError: naming the setting.
    """
    for message in _impossible_places(training, methods):
        raise ConfigError(f"training.{message}")


def _impossible_places(training: TrainingConfig, methods: Iterable[str]) -> Iterator[str]:
    nodes = training.nodes
    if nodes > 1 and "SLURM_JOB_ID" not in os.environ:
        yield (
            f"nodes={nodes}: this is no Slurm allocation (SLURM_JOB_ID is not set); start the run "
            "in one, as `lpfloop launch slurm` does"
        )
    if nodes > 1 and shutil.which("srun") is None:
        yield f"nodes={nodes}: there is no `srun` on the PATH; load Slurm's module"
    allocated = int(os.environ.get(ALLOCATED, "1"))
    if nodes > allocated:
        yield (
            f"nodes={nodes}: this allocation has {allocated} ({ALLOCATED}); ask for more (sbatch "
            "--nodes), or lower it"
        )
    if training.processes != "auto" and training.processes % nodes:
        yield (
            f"processes={training.processes} are those of all nodes together, and training.nodes="
            f"{nodes} cannot share them evenly; make it a multiple, or set it to auto"
        )
    gpus = len(training_gpus(training))
    if training.sharding != "none" and not gpus:
        yield (
            f"sharding={training.sharding}: no GPU is visible here, and on a CPU nothing is "
            "divided; leave it out"
        )
    for method in methods:
        settings: Settings = getattr(training, method)
        processes = processes_of(training, settings, gpus)
        if gpus and processes > gpus * nodes:
            where = f" on each of {nodes} nodes like this one" if nodes > 1 else ""
            yield (
                f"processes={processes}: each needs a GPU, and there are {gpus} to train on"
                f"{where}; lower it, or set it to auto"
            )
        yield from (f"{method}.{message}" for message in _uneven_batches(settings, processes))


def _uneven_batches(settings: Settings, processes: int) -> Iterator[str]:
    share = settings.micro_batch_size * processes
    if settings.batch_size % share:
        yield (
            f"batch_size={settings.batch_size} is not a multiple of processes x micro_batch_size "
            f"({processes} x {settings.micro_batch_size} = {share})"
        )


def require_nodes(training: TrainingConfig, folder: Path) -> None:
    """Refuse nodes that cannot be started or do not see the disk of `folder`.

    `srun` starts `ls` on each node, which looks for a new folder there.

    Raises:
        ConfigError: with the output.
    """
    if training.nodes == 1:
        return
    seen = next(path for path in (folder, *folder.parents) if path.is_dir())
    with (
        tempfile.TemporaryDirectory(prefix=".nodes-", dir=seen) as made,
        tempfile.NamedTemporaryFile() as out,
    ):
        argv = on_nodes(training.nodes, ["ls", "-d", made])
        child = start(argv, bare_environment(), out.file)
        with kill_on_exit(child, retry_timeout_s=ENDING_S):
            try:
                code = child.wait(STARTING_S)
            except subprocess.TimeoutExpired:
                code = None
        lines = Path(out.name).read_text(errors="replace").splitlines()
    output = "; ".join(line.strip() for line in lines if line.strip() not in ("", made))
    if code != 0:
        raise ConfigError(
            f"training.nodes={training.nodes}: not each of these nodes could be started and sees "
            f"{seen} (put the lake on a disk that all of them share): "
            f"{output or f'nothing in {STARTING_S:.0f} s'}"
        )


def refuse_unfit(job: TrainJob) -> None:
    """Refuse a job that cannot be trained as configured.

    Raises:
        TrainingError: of kind `refused`.
    """
    for message in _misfits(job):
        raise TrainingError("refused", message)
    refuse_missing_layers(job.fit, job.model)


def _misfits(job: TrainJob) -> Iterator[str]:
    s, processes = job.settings, job.processes
    yield from _uneven_batches(s, processes)
    if processes % job.fit.nodes:
        yield f"{processes} processes cannot be shared evenly by {job.fit.nodes} nodes"
    if job.supervised is not None and job.supervised.batch_size % processes:
        size = job.supervised.batch_size
        yield f"next_token.batch_size={size} is not a multiple of the {processes} processes"
    if not isinstance(s, SETTINGS[job.method]):
        yield f"{job.method} cannot be trained with {type(s).__name__}"
    if not job.data:
        yield "there is no data to train on"
    yield from (f"{p} does not exist" for p in job.files if not p.is_file())
    yield from (f"{p} does not exist" for p in job.folders if not p.is_dir())


def refuse_missing_layers(fit: TrainingFit, model: Path) -> None:
    """Refuse adapters on layers that a model does not have.

    Raises:
        TrainingError: of kind `refused`, naming the layers that it has.
    """
    targets = fit.lora.targets
    if not fit.adapts or isinstance(targets, str):
        return
    layers = _linear_layers(model)
    for target in targets:
        if not any(_is_named(layer, (target,)) for layer in layers):
            names = sorted({layer.rpartition(".")[2] for layer in layers})
            raise TrainingError(
                "refused",
                f"training.lora.targets names {target!r}, and {model} does not have such a linear "
                f"layer in its blocks; it has {', '.join(names)}",
            )


def _linear_layers(model: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each linear layer of a model's blocks."""
    return {
        name.removesuffix(".weight"): shape
        for name, shape in _tensor_shapes(model).items()
        if name.endswith(".weight") and len(shape) == MATRIX and BLOCK.search(name)
    }


def adapter_parameters(fit: TrainingFit, model: Path) -> int:
    """Return the number of weights of the adapters on a model; 0 if all weights are trained."""
    targets = fit.lora.targets
    return fit.lora.r and sum(
        fit.lora.r * sum(shape)
        for layer, shape in _linear_layers(model).items()
        if isinstance(targets, str) or _is_named(layer, targets)
    )


def _is_named(layer: str, targets: tuple[str, ...]) -> bool:
    """Return whether peft would put adapters onto a layer: by its name, or how that ends."""
    return any(layer == target or layer.endswith(f".{target}") for target in targets)


def refuse_full_disk(job: TrainJob) -> None:
    """Refuse a training whose files do not fit on the disk of its work folder.

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
    trained = adapter_parameters(fit, model) or parameters(model)
    if value is not None:
        trained += trained if fit.adapts else parameters(value)
    # Each step but the last may end in one; a new one is complete before an old one is removed.
    checkpoints = min(max(0, steps - 1), KEPT + 1)
    copies = parameters(model) * _published_bytes(fit) if read else 0
    states = CHECKPOINTED[fit.optimizer] * trained * checkpoints
    return model_bytes(fit, model) + copies + states


def model_bytes(fit: TrainingFit, model: Path) -> int:
    """Return the bytes of a published model with its adapters, in float32."""
    return parameters(model) * _published_bytes(fit) + 4 * adapter_parameters(fit, model)


def _published_bytes(fit: TrainingFit) -> int:
    """Return the most bytes that a weight takes during publication.

    Weights that were all trained are saved in float32 and, if they are published in fewer bits,
    once more rounded. Those with adapters merged into them are saved once.
    """
    rounded = 2 if fit.publish in ("bfloat16", "float16") else 0
    return (rounded or 4) if fit.adapts else 4 + rounded


def parameters(model: Path) -> int:
    """Return the number of weights in a folder of safetensors files, by their headers."""
    return sum(math.prod(shape) for shape in _tensor_shapes(model).values())


def _tensor_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(entry["shape"])
        for path in weight_files(model)
        for name, entry in header(path).items()
        if name != "__metadata__"
    }


def header(path: Path) -> Mapping[str, Mapping[str, list[int]]]:
    """Return the header of a safetensors file: for each tensor its type, shape and place.

    Raises:
        TrainingError: of kind `refused`, if the header cannot be read.
    """
    try:
        with path.open("rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except (ValueError, OverflowError, MemoryError) as error:
        message = f"{path} is no safetensors file ({error}); restore the model's folder"
        raise TrainingError("refused", message) from error
