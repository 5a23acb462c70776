"""Whether a run's trainings can be started as they are told, before anything is paid."""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ...configs.section import ConfigError
from ...configs.training import TrainingConfig
from .launchers import LAUNCHERS, NODE_LAUNCHERS
from .node_plan import NodePlan, has_met, new_start, write_plan
from .trainer_faults import told_refusal
from .trainer_job import Settings
from .trainer_process import running
from .trainer_steps import new_lines
from .training_places import processes_of, training_gpus

REHEARSAL_S = 300.0
"""Seconds in which a launcher reaches all nodes that it has."""


def require_training_places(training: TrainingConfig, methods: Iterable[str]) -> None:
    """Refuse trainings by `methods` that this machine cannot make.

    Raises:
        ConfigError: naming the setting.
    """
    nodes = training.nodes
    reason = LAUNCHERS[training.launcher].refusal(nodes)
    if reason is not None:
        raise ConfigError(f"training.launcher={training.launcher}: {reason}")
    if training.processes != "auto" and training.processes % nodes:
        raise ConfigError(
            f"training.processes={training.processes} are those of all nodes together, and "
            f"training.nodes={nodes} cannot share them evenly; make it a multiple, or set it to "
            "auto"
        )
    gpus = len(training_gpus(training))
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


def require_nodes(training: TrainingConfig, methods: Iterable[str], folder: Path) -> None:
    """Refuse nodes that cannot be started, or do not see a folder, which need not exist yet.

    A launcher that reaches other machines starts on each of them what it would train with, but
    without a job: it only looks for what this machine wrote, and what the first node writes.

    Raises:
        ConfigError: naming the node and what it lacks.
    """
    launcher = NODE_LAUNCHERS.get(training.launcher)
    if launcher is None:
        return
    gpus = len(training_gpus(training))
    counts = (processes_of(training, getattr(training, method), gpus) for method in methods)
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    with tempfile.TemporaryDirectory(
        prefix=".nodes-", dir=there, ignore_cleanup_errors=True
    ) as made:
        work, log = Path(made), Path(made) / "nodes.log"
        plan = NodePlan(
            start=new_start(),
            nodes=training.nodes,
            processes=max(counts, default=training.nodes) // training.nodes,
            launcher=training.launcher,
            devices=training.devices,
            divided=training.sharding != "none",
            blind=training.processes == "auto" and not gpus,
            trains=False,
        )
        argv = launcher.node_argv(work, write_plan(work, plan))
        with (
            log.open("ab") as out,
            running(
                argv, launcher.node_environment(), out, patience_s=launcher.patience_s
            ) as child,
        ):
            try:
                code = child.wait(REHEARSAL_S)
            except subprocess.TimeoutExpired:
                code = None
        lines, _ = new_lines(log, 0)
        if code != 0:
            why = told_refusal(lines) if code is not None else f"nothing in {REHEARSAL_S:.0f} s"
            raise ConfigError(
                f"training.launcher={training.launcher} cannot start {training.nodes} nodes: {why}"
            )
        if not has_met(work, plan):
            raise ConfigError(
                f"training.nodes={training.nodes}: this machine does not see in {there} what the "
                "first node writes there: put the lake (--lake) on a disk that all of them share"
            )
