"""Whether this machine, and the nodes it reaches, can run a run's trainings; asked first of all."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from ...configs.section import ConfigError
from ...configs.training import TrainingConfig
from ...stores.installation import pip_install
from .launch import nodes_environment, on_nodes, processes_of, training_gpus
from .trainer_job import Settings
from .trainer_process import NODES_ENDING_S, running

ALLOCATED = "SLURM_JOB_NUM_NODES"
"""The variable with the number of nodes of the allocation."""

LOOK_S = 300.0
"""Seconds in which all nodes must have looked for the lake."""


def require_training_places(training: TrainingConfig, methods: Iterable[str]) -> None:
    """Refuse trainings by `methods` that this machine cannot make.

    Raises:
        ConfigError: naming the setting.
    """
    nodes = training.nodes
    reason = _launcher_missing(training)
    if reason is not None:
        raise ConfigError(f"training.launcher={training.launcher}: {reason}")
    if training.processes != "auto" and training.processes % nodes:
        raise ConfigError(
            f"training.processes={training.processes} are those of all nodes together, and "
            f"training.nodes={nodes} cannot share them evenly; make it a multiple, or set it to "
            "auto"
        )
    gpus = len(training_gpus(training))
    if training.launcher == "ray" and training.processes == "auto" and not gpus:
        raise ConfigError(
            "training.processes=auto counts the GPUs of this machine, which shows none; set it to "
            "the number of GPUs on all nodes of the Ray cluster"
        )
    if training.sharding != "none" and not gpus and training.launcher != "ray":
        raise ConfigError(
            f"training.sharding={training.sharding}: no GPU is visible here, and on a CPU nothing "
            "is divided; leave it out"
        )
    for method in methods:
        settings: Settings = getattr(training, method)
        processes = processes_of(training, settings, gpus)
        if gpus and processes > gpus * nodes:
            where = f" on each of {nodes} nodes like this one" if nodes > 1 else ""
            raise ConfigError(
                f"training.processes={processes}: each needs a GPU, and there are {gpus} to train "
                f"on{where}; lower it, or set it to auto"
            )
        share = settings.micro_batch_size * processes
        if settings.batch_size % share:
            raise ConfigError(
                f"training.{method}.batch_size={settings.batch_size} is not a multiple of "
                f"processes x micro_batch_size ({processes} x {settings.micro_batch_size} = "
                f"{share})"
            )


def _launcher_missing(training: TrainingConfig) -> str | None:
    """Say what keeps a launcher from starting the nodes from here, as far as is known here."""
    if training.launcher == "ray":
        return None if find_spec("ray") else f"ray is not installed: {pip_install('ray')}"
    if training.launcher == "local":
        return None
    if "SLURM_JOB_ID" not in os.environ:
        return (
            "this is no Slurm allocation (SLURM_JOB_ID is not set); start the run in one, as "
            "`lpfloop launch slurm` does"
        )
    if shutil.which("srun") is None:
        return "there is no `srun` on the PATH; load Slurm's module"
    allocated = int(os.environ.get(ALLOCATED, "1"))
    if training.nodes > allocated:
        return (
            f"training.nodes={training.nodes}, and this allocation has {allocated} ({ALLOCATED}); "
            "ask for more (sbatch --nodes), or lower it"
        )
    return None


def require_nodes(training: TrainingConfig, folder: Path) -> None:
    """Refuse nodes that cannot be started, or do not see a folder, which need not exist yet.

    Each node looks for a new folder next to it, by the launcher that would start the training.

    Raises:
        ConfigError: with what the launcher printed.
    """
    if training.launcher == "local":
        return
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    with (
        tempfile.TemporaryDirectory(prefix=".nodes-", dir=there) as made,
        tempfile.NamedTemporaryFile() as out,
    ):
        argv = on_nodes(training.launcher, training.nodes, ["ls", "-d", made])
        environment = nodes_environment(training.launcher)
        with running(argv, environment, out.file, NODES_ENDING_S) as child:
            try:
                code = child.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                code = None
        lines = Path(out.name).read_text(errors="replace").splitlines()
    said = "; ".join(line.strip() for line in lines if line.strip() not in ("", made))
    if code != 0:
        raise ConfigError(
            f"training.launcher={training.launcher}: not each of {training.nodes} nodes could be "
            f"started and sees {there} (put the lake on a disk that all of them share): "
            f"{said or f'nothing in {LOOK_S:.0f} s'}"
        )
