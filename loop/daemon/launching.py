"""Handing a run to Slurm or to a Ray cluster, with checks before it waits in a queue."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any, Literal

from ...configs.schema import ConfigError, RunConfig
from ...stores.address import bucket_of
from ...stores.journal_reader import JOURNAL
from ...stores.lake import run_folder
from ..recipes.roles import NeededRole, needed_roles
from ..run.models import CRITIC, is_endpoint

Scheduler = Literal["slurm", "ray"]

PROGRAMS: Mapping[Scheduler, Sequence[str]] = {
    "slurm": ("sbatch",),
    "ray": (sys.executable, "-P", "-"),
}
"""The programs that read a scheduler's text from standard input.

`ray job submit` quotes an entrypoint as Windows does, so a Python script submits the job.
"""

GRACE_S = 120
"""Seconds between SIGTERM and the end: the loop drains, commits and exits as resumable."""

OWN_DISKS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The resources of each node; None is the cluster's default. `time` is in Slurm's notation."""

    nodes: int = 1
    partition: str | None = None
    account: str | None = None
    gpus: int = 1
    cpus: int = 8
    mem: str = "64G"
    time: str = "24:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """A run as a scheduler starts it: `options` are options of `lpfloop run`.

    The scheduler's machines see the `lake` at the same place as this one.
    """

    name: str
    lake: Path
    options: tuple[str, ...]

    @property
    def journal(self) -> Path:
        """The file that exists once the run has started."""
        return run_folder(self.lake.absolute(), self.name) / JOURNAL

    def start(self, program: Sequence[str]) -> str:
        """Return the shell command that begins the run."""
        return shlex.join([*program, "run", "--run", self.name, *self._lake(), *self.options])

    def go_on(self, program: Sequence[str], command: Literal["resume", "stop"]) -> str:
        """Return the shell command that continues the run, or stops it cleanly."""
        return shlex.join([*program, command, self.name, *self._lake()])

    def _lake(self) -> list[str]:
        lake = self.lake.absolute()
        return ["--lake", bucket_of(lake) or str(lake)]


def ray_script(run: LaunchedRun, config: RunConfig, allocation: Allocation) -> str:
    """Return a Python script that submits the loop to the cluster that RAY_ADDRESS names.

    The job itself has the GPUs of a node if it trains there. By default Ray kills a job three
    seconds after its SIGTERM, and does not restart any: the same script continues the run.
    """
    # By name: the `python` of the cluster's nodes.
    program = ("python", "-P", "-m", "lpfloop")
    job: dict[str, Any] = {
        "entrypoint": (
            f"if [ -e {shlex.quote(str(run.journal))} ]; then\n"
            f"    exec {run.go_on(program, 'resume')}\n"
            "fi\n"
            f"exec {run.start(program)}\n"
        ),
        "entrypoint_num_cpus": allocation.cpus,
        "entrypoint_num_gpus": 0 if config.training.launcher == "ray" else allocation.gpus,
        "metadata": {"lpfloop_run": run.name},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_S)}},
    }
    return (
        "from ray.job_submission import JobSubmissionClient\n\n"
        f"job = {pformat(job, sort_dicts=False, width=100)}\n\n"
        "print(JobSubmissionClient().submit_job(**job))\n"
    )


def submit(scheduler: Scheduler, text: str) -> str:
    """Hand a text to a scheduler's program; return its output.

    Raises:
        ConfigError: if the program is not here, or refuses it.
    """
    program = PROGRAMS[scheduler]
    if shutil.which(program[0]) is None:
        raise ConfigError(
            f"launch {scheduler}: `{program[0]}` is not installed here; --print shows what to "
            "submit elsewhere"
        )
    done = subprocess.run(program, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split()[-60:])
        raise ConfigError(f"launch {scheduler}: `{program[0]}` refused it: {message}")
    return done.stdout


def refuse_launcher(config: RunConfig, scheduler: Scheduler) -> None:
    """Refuse a way to train over nodes that a scheduler does not have.

    Raises:
        ConfigError: if the configuration names it.
    """
    theirs, other = ("srun", "ray") if scheduler == "slurm" else ("ray", "srun")
    if config.training.launcher == other:
        raise ConfigError(
            f"launch {scheduler}: training.launcher={other} starts nothing there; choose {theirs}, "
            "or local for the node of the loop alone"
        )


def sampling_nodes(config: RunConfig, nodes: int) -> int:
    """Return on how many of the nodes nothing is trained: models can be sampled there.

    Raises:
        ConfigError: if a training asks for more nodes, or no model can run on the others.
    """
    sampling = nodes - config.training.nodes
    if sampling < 0:
        raise ConfigError(
            f"--nodes {nodes}: training.nodes={config.training.nodes}; ask for as many at least, "
            "or lower it"
        )
    if sampling and not _local_roles(config) and not _is_placed(config):
        idle = "1 node" if sampling == 1 else f"{sampling} nodes"
        raise ConfigError(
            f"--nodes {nodes}: every model of this run is at an endpoint, and {idle} would be "
            "idle; leave out --nodes"
        )
    return sampling


def placed_in_ray(config: RunConfig) -> list[str]:
    """Return the options that put policy and critic in a Ray cluster, unless a place is set."""
    roles = [] if _is_placed(config) else _local_roles(config)
    return [f"--set={role.name}.engine.place=ray" for role in roles]


def unseen(lake: Path) -> str | None:
    """Return a warning about a lake that other machines will hardly see, or None."""
    if not any(lake.absolute().is_relative_to(disk) for disk in OWN_DISKS):
        return None
    return (
        f"--lake {lake.absolute()}: every machine has such a folder of its own; the nodes must see "
        "this one, for its journal and for the weights that it trains"
    )


def _local_roles(config: RunConfig) -> list[NeededRole]:
    """Return policy and critic, if the run asks them and they are models here."""
    return [
        role
        for role in needed_roles(config)
        if role.name in ("policy", CRITIC)
        and role.engine is not None
        and role.engine.kind not in ("openai", "scripted")
        and not is_endpoint(role.model)
    ]


def _is_placed(config: RunConfig) -> bool:
    """Whether the configuration places a model elsewhere."""
    engines = [role.engine for role in needed_roles(config) if role.engine is not None]
    return any(part.place != "local" for part in (config.reward, *engines))
