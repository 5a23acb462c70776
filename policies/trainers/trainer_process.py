"""The child process of a training: how it is launched, followed, and ended when it hangs."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from ...stores.durable import write_file
from .prepared_rows import CACHE
from .trainer_faults import TrainingError, halted, hung
from .trainer_job import ONLINE, TrainJob
from .trainer_orders import Orders, write_orders
from .trainer_steps import STEPS, TrainerProgress, new_lines, parse_row, progress_of
from .training_places import shown_gpus

POLL_S = 0.2
LONGEST_LOOK_S = 1.0
"""The most that one look adds to a silence: time that the parent was suspended must not count."""

PULSE = "alive"
"""The file that the child touches while it computes, also between steps and before the first."""

LOCK = "trainer.lock"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a child is monitored.

    `on_progress` is called for every step, `is_to_end` several times a second; an exception from
    either ends the child. After `stall_s` seconds without a sign of life the child is killed. The
    child makes a checkpoint every `checkpoint_s` seconds.
    """

    log: Path
    stall_s: float
    checkpoint_s: float
    is_to_end: Callable[[], bool]
    on_progress: Callable[[TrainerProgress], None] | None = None


@dataclass(slots=True)
class Silence:
    """How long, in seconds, a sign of life has stayed the same."""

    looked: float
    sign: object = None
    since_s: float = 0.0

    def look(self, sign: object, now: float) -> float:
        """Note the sign of life seen at `now`; return the silence in seconds."""
        passed = min(now - self.looked, LONGEST_LOOK_S)
        self.since_s = self.since_s + passed if sign == self.sign else 0.0
        self.sign, self.looked = sign, now
        return self.since_s


def run_worker(job: TrainJob, watch: Watch) -> tuple[int, bool]:
    """Run the child to its end; return its exit code, and whether its training began.

    Raises:
        TrainingError: of kind `hung`, when the child was killed for giving no sign of life; of kind
            `halted`, when it was to end before its training began.
    """
    steps = job.folder(STEPS)
    offset = steps.stat().st_size if steps.exists() else 0
    silence = Silence(monotonic())
    began = told = False
    with launched(job, watch.log) as child:
        while True:
            code = child.poll()
            lines, offset = new_lines(steps, offset)
            for row in filter(None, map(parse_row, lines)):
                began = True
                if watch.on_progress and row["event"] == "step":
                    watch.on_progress(progress_of(row))
            if code is not None:
                return code, began
            if not told and watch.is_to_end():
                if not began:
                    raise halted(job)
                write_orders(job.output, Orders(end=True))
                told = True
            silent_s = silence.look((offset, modified(job.folder(PULSE))), monotonic())
            if silent_s >= watch.stall_s:
                raise hung(job, silent_s, watch.log)
            sleep(POLL_S)


def modified(path: Path) -> int:
    """Return when a file was last touched, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def launched(job: TrainJob, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start the child in its own session; kill its whole session on the way out.

    Its standard input is a pipe that this process holds open: the workers end when it is closed, so
    they outlive neither a parent that was killed nor a launcher that died before them.
    """
    with log.open("ab") as out:
        child = subprocess.Popen(
            launch_argv(job),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(job),
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        if child.stdin is not None:
            child.stdin.close()
        child.wait()


def launch_argv(job: TrainJob) -> list[str]:
    """Return the command: `accelerate launch`, independent of the user's default configuration."""
    config = job.accelerate_config
    if config is None:
        config = job.folder("accelerate.json")
        # The online methods divide their networks themselves.
        sharding = "none" if job.method in ONLINE else job.fit.sharding
        settings = accelerate_settings(job.processes, sharding=sharding)
        write_file(config, json.dumps(settings, indent=1).encode())
    threads = max(1, len(os.sched_getaffinity(0)) // job.processes)
    return [
        *(sys.executable, "-P", "-m", "accelerate.commands.launch", "--config_file", str(config)),
        *("--num_processes", str(job.processes), "--num_cpu_threads_per_process", str(threads)),
        *(
            "--module",
            "lpfloop.policies.train_worker",
            str(job.folder("job.json")),
        ),
    ]


def accelerate_settings(processes: int, *, sharding: str = "none") -> dict[str, Any]:
    """Return the launcher's configuration for one machine: plain data parallelism, or FSDP2."""
    plain = "MULTI_GPU" if processes > 1 else "NO"
    divided = {"distributed_type": "FSDP", "fsdp_config": FSDP2} if sharding == "fsdp2" else {}
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": plain,
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": processes,
        "main_process_port": 0,
        "mixed_precision": "no",  # The trainer's own arguments say bf16 on a GPU.
        "use_cpu": False,
        **divided,
    }


def child_environment(job: TrainJob) -> dict[str, str]:
    """Return the child's environment: its GPUs alone, no secrets, no network, caches in its folder.

    Raises:
        TrainingError: of kind `refused`, when its GPUs are not there.
    """
    env = {name: value for name, value in os.environ.items() if not SECRETS.search(name)}
    return (
        env
        | dict(shown_gpus(job))
        | {
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_DATASETS_CACHE": str(job.folder(CACHE)),
            "TQDM_DISABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            # The launcher's own children have no -P: an unpacked data set may hold a json.py.
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
            # Spinning threads made training seven times slower on shared cores.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        }
    )


@contextmanager
def alone(job: TrainJob, *, patience_s: float) -> Generator[None]:
    """Lock the work folder, which the child of a killed parent may still hold for a moment.

    The kernel releases the lock however its holder dies.

    Raises:
        TrainingError: of kind `hung`, when another trainer keeps it for longer than `patience_s`.
    """
    deadline = monotonic() + patience_s
    with job.folder(LOCK).open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= deadline:
                    message = f"another trainer still works in {job.output}; end it, then resume"
                    raise TrainingError("hung", message) from None
            sleep(POLL_S)
        yield
