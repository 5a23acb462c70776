"""The command that runs a training's processes on one machine, and their environment.

`accelerate launch` starts several processes, or FSDP. A single process is started directly: for
it, the launcher would only import accelerate once more.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configs.training import TrainingConfig
from ...stores.durable import write_file
from ..devices import showing
from .trainer_job import ONLINE, TrainJob
from .training_places import shown_gpus, training_gpus

FSDP2: Mapping[str, Any] = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_offload_params": False,
    "fsdp_activation_checkpointing": False,
}
"""FSDP by transformers' blocks. The first process alone loads the weights; checkpoints are written
by all processes, each its part, and the model in the end is whole (`sharded_training.save_whole`).
Activations are computed again by the model itself, where `training.recompute` says so."""

SECRETS = re.compile(r"(TOKEN|_KEY|SECRET|PASSWORD)$")
WORKER = "lpfloop.policies.train_worker"
WAIT = "-"
"""In place of a job's path: the worker reads it from its standard input."""
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingPoint:
    """Where the processes of several nodes find one another: a port on the first node."""

    host: str
    port: int


def needs_launcher(job: TrainJob) -> bool:
    """Return whether a training on this machine needs `accelerate launch`."""
    sharded = job.fit.sharding != "none" and job.method not in ONLINE
    return job.processes > 1 or sharded or job.accelerate_config is not None


def single_argv(job: TrainJob) -> list[str]:
    """Return the command of a training in one process, without a launcher."""
    return [sys.executable, "-P", "-m", WORKER, str(job.folder("job.json"))]


def threads_here(processes: int = 1) -> int:
    """Return the number of threads that each of so many processes on this machine computes with."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def accelerate_argv(
    job: TrainJob, *, node: int = 0, meeting: MeetingPoint | None = None
) -> list[str]:
    """Return `accelerate launch` of one node, independent of the user's default configuration."""
    point = (
        (
            *("--num_machines", str(job.fit.nodes), "--machine_rank", str(node)),
            *("--main_process_ip", meeting.host, "--main_process_port", str(meeting.port)),
        )
        if meeting
        else ()
    )
    return [
        *(sys.executable, "-P", "-m", "accelerate.commands.launch"),
        *("--config_file", str(accelerate_file(job)), *point),
        *("--num_processes", str(job.processes)),
        *("--num_cpu_threads_per_process", str(threads_here(job.processes_per_node))),
        *("--module", WORKER, str(job.folder("job.json"))),
    ]


def accelerate_file(job: TrainJob) -> Path:
    """Return the launcher's configuration: the user's, or one in the work folder."""
    return job.accelerate_config or job.folder("accelerate.json")


def write_settings(job: TrainJob) -> None:
    """Write the launcher's configuration, unless the user has one."""
    if job.accelerate_config is None:
        # The online methods divide their networks themselves.
        sharding = "none" if job.method in ONLINE else job.fit.sharding
        settings = accelerate_settings(job.processes, nodes=job.fit.nodes, sharding=sharding)
        write_file(accelerate_file(job), json.dumps(settings, indent=1).encode())


def accelerate_settings(
    processes: int, *, nodes: int = 1, sharding: str = "none"
) -> dict[str, Any]:
    """Return the launcher's configuration: plain data parallelism, or FSDP2."""
    plain = "MULTI_GPU" if processes > 1 else "NO"
    divided = {"distributed_type": "FSDP", "fsdp_config": FSDP2} if sharding == "fsdp2" else {}
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": plain,
        "num_machines": nodes,
        "machine_rank": 0,
        "num_processes": processes,
        "main_process_port": 0,
        "mixed_precision": "no",  # The trainer's own arguments say bf16 on a GPU.
        "use_cpu": False,
        **divided,
    }


def child_environment(job: TrainJob) -> dict[str, str]:
    """Return the environment of a job's processes on this machine, with its GPUs alone.

    Raises:
        TrainingError: of kind `refused`, when its GPUs are not there.
    """
    return (
        bare_environment()
        | dict(shown_gpus(job))
        | {THREADS: str(threads_here(job.processes_per_node))}
    )


def single_environment(training: TrainingConfig) -> dict[str, str]:
    """Return the environment of a training in one process on this machine, before its job is known.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    gpus = showing(training_gpus(training)[:1])
    return bare_environment() | dict(gpus) | {THREADS: str(threads_here())}


def bare_environment() -> dict[str, str]:
    """Return an environment without secrets and, for the libraries, without a network."""
    env = {name: value for name, value in os.environ.items() if not SECRETS.search(name)}
    return env | {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # The launcher's own children have no -P: an unpacked data set may hold a json.py.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        # Spinning threads made training seven times slower on shared cores.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }
