"""The command and the environment of a training: `argv(job)` and `environment(job)`.

One process is started directly: the launcher would only import accelerate once more. Several are
started by `accelerate launch`. On several machines the same `accelerate launch` runs on each, under
`srun` in the run's Slurm allocation; torch's c10d rendezvous connects them.

A node's processes see only their own GPUs: first those that they train on, one each, then those
that only the sampler of an online method uses. The trainer's first process opens the sampler, on
its own node.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...configs.engines import EngineConfig
from ...configs.mistakes import ConfigError
from ...configs.training import TrainingConfig
from ...stores.durable import write_file
from ..devices import VISIBLE, Gpu, showing
from ..workers.places import DeviceGroup, device_groups
from .job import ONLINE, Settings, TrainingError, TrainJob
from .training_fit import TrainingFit

FSDP2: Mapping[str, Any] = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_offload_params": False,
    "fsdp_activation_checkpointing": False,
}
"""FSDP by transformers' blocks. Only the first process loads the weights; every process writes its
part of a checkpoint, and the finished model is saved whole (`trained_model.save_trained`).
Activations are recomputed by the model itself (`training.gradient_checkpointing`)."""

SECRETS = re.compile(r"(TOKEN|_KEY|SECRET|PASSWORD)$")
WORKER = "lpfloop.policies.train_worker"
WAIT = "-"
"""An argument instead of a job's path: the worker reads the path from its standard input."""
THREADS = "OMP_NUM_THREADS"
SAMPLER = "policy.engine"
"""The section that a message about the sampler's GPUs names."""

SLURM_CPUS = "SLURM_JOB_CPUS_PER_NODE"
"""The variable with the processors of each node of the allocation, such as `72(x2),36`."""


def argv(job: TrainJob) -> list[str]:
    """Return the command of a job's processes; write its `accelerate.json`, if it needs one.

    All processes end, on every machine, when the command's standard input is closed.
    """
    fit = job.fit
    # The online methods divide their networks themselves.
    sharded = fit.sharding != "none" and job.method not in ONLINE
    if job.processes == 1 and not sharded:
        return single_argv(job)
    sharding = fit.sharding if sharded else "none"
    settings = accelerate_settings(job.processes, nodes=fit.nodes, sharding=sharding)
    write_file(job.folder("accelerate.json"), json.dumps(settings, indent=1).encode())
    command = [
        *(sys.executable, "-P", "-m", "accelerate.commands.launch"),
        *("--config_file", str(job.folder("accelerate.json"))),
        *_rendezvous(job),
        *("--num_processes", str(job.processes)),
        *("--num_cpu_threads_per_process", str(threads_here(job.processes_per_node))),
        *("--module", WORKER, str(job.folder("job.json"))),
    ]
    return command if fit.nodes == 1 else on_nodes(fit.nodes, command)


def single_argv(job: TrainJob) -> list[str]:
    """Return the command of a training in one process, without a launcher."""
    return [sys.executable, "-P", "-m", WORKER, str(job.folder("job.json"))]


def accelerate_settings(
    processes: int, *, nodes: int = 1, sharding: str = "none"
) -> dict[str, Any]:
    """Return the launcher's configuration: plain data parallelism, or FSDP2."""
    fsdp = {"distributed_type": "FSDP", "fsdp_config": FSDP2} if sharding == "fsdp2" else {}
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if processes > 1 else "NO",
        "num_machines": nodes,
        "machine_rank": 0,
        "num_processes": processes,
        "main_process_port": 0,
        "mixed_precision": "no",  # The trainer's own arguments set bf16 on a GPU.
        "use_cpu": False,
        **fsdp,
    }


def _rendezvous(job: TrainJob) -> list[str]:
    """Return the options of `accelerate launch` by which several nodes find one another."""
    if job.fit.nodes == 1:
        return []
    options = ["--num_machines", str(job.fit.nodes), "--rdzv_backend", "c10d"]
    # The run is on the first node of its allocation, where the step's first task is, too.
    head = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    at = ["--main_process_ip", head, "--main_process_port", str(free_port())]
    engine = "auto" if job.online is None else job.online.engine.devices
    if (job.fit.devices, engine) == ("auto", "auto"):
        return [*options, *at]
    # Slurm sets CUDA_VISIBLE_DEVICES of each task, so only the launcher can choose among them.
    gpus = shown_gpus(job)
    return [*options, *at, *(("--gpu_ids", gpus[VISIBLE]) if gpus else ())]


def on_nodes(nodes: int, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` on each of `nodes` machines until all have ended.

    Slurm gives it all GPUs of the allocation.
    """
    cpus = [int(n) for n in re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get(SLURM_CPUS, ""))]
    return [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        # The run is a step of the same allocation, on its first node.
        *("--relative=0", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1", "--wait=0"),
        *([f"--cpus-per-task={min(cpus)}"] if cpus else []),
        *command,
    ]


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def threads_here(processes: int = 1) -> int:
    """Return how many threads each of `processes` on this machine computes with."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def environment(job: TrainJob) -> dict[str, str]:
    """Return the environment of a job's command; processes on this machine see only its GPUs.

    Raises:
        TrainingError: of kind `refused`, if those GPUs do not exist.
    """
    if job.fit.nodes > 1:  # srun passes it to its tasks
        return bare_environment()
    threads = {THREADS: str(threads_here(job.processes_per_node))}
    return bare_environment() | dict(shown_gpus(job)) | threads


def single_environment(training: TrainingConfig) -> dict[str, str]:
    """Return the environment of a training in one local process, before its job is determined.

    Raises:
        ConfigError: naming the setting, if this machine does not have its GPUs.
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
        # The launcher's own children run without -P: an unpacked data set may hold a json.py.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        # Spinning threads made training seven times slower on shared cores.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def training_gpus(place: TrainingConfig | TrainingFit) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine that a training may use; empty on a CPU.

    Raises:
        ConfigError: naming the setting, if this machine does not have its GPUs.
    """
    groups = device_groups("training", place.devices, "auto")
    return tuple(gpu for group in groups for gpu in group.gpus)


def shown_gpus(job: TrainJob) -> Mapping[str, str]:
    """Return the variables under which the processes of a training see only their own GPUs.

    TRL refuses a process that sees more GPUs than there are processes: it would spread one model
    over all of them.

    Raises:
        TrainingError: of kind `refused`, if a process or the sampler lacks a GPU.
    """
    here = job.processes_per_node
    try:
        gpus = training_gpus(job.fit)
        sampler = (
            []
            if job.online is None
            else [
                gpu
                for group in device_groups(SAMPLER, job.online.engine.devices, "auto")
                for gpu in group.gpus
                if gpu not in gpus[:here]
            ]
        )
    except ConfigError as error:
        raise TrainingError("refused", str(error)) from error
    if gpus and here > len(gpus):
        message = f"{here} processes need a GPU each, and there are {len(gpus)}"
        raise TrainingError("refused", message)
    return showing((*gpus[:here], *sampler))


def engine_in_trainer(job: TrainJob, engine: EngineConfig) -> EngineConfig:
    """Return the sampler's engine with its GPUs numbered as the trainer's processes see them."""
    if engine.devices == "auto":
        return engine
    trained_on = range(job.processes_per_node) if job.fit.devices == "auto" else job.fit.devices
    own = tuple(trained_on)[: job.processes_per_node]
    order = (*own, *(number for number in engine.devices if number not in own))
    numbers = tuple(order.index(number) for number in engine.devices)
    return engine.model_copy(update={"devices": numbers})


def is_shared(group: DeviceGroup, job: TrainJob) -> bool:
    """Return whether one of the job's processes trains on a GPU of a sampler's replica."""
    return any(number < job.processes_per_node for number in group.numbers)


def processes_of(training: TrainingConfig, settings: Settings, gpus: int) -> int:
    """Return the number of processes of a training that may use `gpus` GPUs of each node.

    `auto` is one for each GPU, or the largest number that divides an optimizer step evenly.
    """
    if training.processes != "auto":
        return training.processes
    nodes = training.nodes
    fewer = range(nodes * max(1, gpus), 0, -nodes)
    return next(n for n in fewer if n == nodes or _divides_evenly(training, settings, n))


def _divides_evenly(training: TrainingConfig, settings: Settings, processes: int) -> bool:
    demonstrations = training.next_token
    even = settings.batch_size % (settings.micro_batch_size * processes) == 0
    return even and (not demonstrations.weight or demonstrations.batch_size % processes == 0)


def left_idle(training: TrainingConfig, settings: Settings, gpus: int) -> str:
    """Return the reason why `processes=auto` leaves GPUs idle; "" if it uses all of them."""
    processes, there = processes_of(training, settings, gpus), gpus * training.nodes
    if training.processes != "auto" or processes >= there:
        return ""
    return (
        f"training.processes=auto takes {processes} of {there} GPUs: more do not divide batch_size "
        f"{settings.batch_size} by micro_batch_size {settings.micro_batch_size}"
    )
