"""The command of a run for a scheduler, and checks of its options before it waits in a queue."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...configs.schema import ConfigError, RunConfig
from ...stores.address import bucket_of
from ...stores.journal_reader import JOURNAL
from ...stores.lake import run_folder
from ..recipes.roles import NeededRole, needed_roles
from ..run.models import CRITIC, is_endpoint

Scheduler = Literal["slurm", "ray"]

REACHES: Mapping[Scheduler, str] = {
    "slurm": "choose srun, or local for the first node alone",
    "ray": "choose ray, or local for the job's own node alone",
}
"""What a training can be started by."""

GRACE_S = 120
"""Seconds between SIGTERM and the end: the loop drains, commits and exits as resumable."""

WORD = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}")
POLICY = "policy"
OWN_DISKS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What to ask of each node; None is the cluster's default. `time` is in Slurm's notation."""

    nodes: int = 1
    partition: str | None = None
    account: str | None = None
    gpus: int = 1
    cpus: int = 8
    mem: str = "64G"
    time: str = "24:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """A run as a scheduler is to start it: `options` are those of `lpfloop run`.

    `lake` is its place as the head names it, `journal` the file that says that the run has begun.
    """

    name: str
    lake: str
    journal: Path
    options: tuple[str, ...]

    def start(self, program: Sequence[str]) -> list[str]:
        """Return the command that begins the run."""
        return [*program, "run", "--run", self.name, "--lake", self.lake, *self.options]

    def resumption(self, program: Sequence[str]) -> list[str]:
        """Return the command that continues it."""
        return [*program, "resume", self.name, "--lake", self.lake]

    def end(self, program: Sequence[str]) -> list[str]:
        """Return the command that stops it cleanly."""
        return [*program, "stop", self.name, "--lake", self.lake]

    def script(self, program: Sequence[str]) -> str:
        """Return a shell script that becomes the one or the other."""
        return (
            f"if [ -e {shlex.quote(str(self.journal))} ]; then\n"
            f"    exec {shlex.join(self.resumption(program))}\n"
            "fi\n"
            f"exec {shlex.join(self.start(program))}\n"
        )


def launched_run(name: str, lake: Path, options: Sequence[str]) -> LaunchedRun:
    """Return a run of a lake that the scheduler's machines see where this one does.

    Raises:
        RunNameError: if the name of the run is not allowed.
    """
    lake = lake.absolute()
    return LaunchedRun(
        name=name,
        lake=bucket_of(lake) or str(lake),
        journal=run_folder(lake, name) / JOURNAL,
        options=tuple(options),
    )


def require_words(allocation: Allocation) -> None:
    """Refuse what a scheduler would not read as one word.

    Raises:
        ConfigError: naming the option.
    """
    for option in ("partition", "account", "mem", "time"):
        value = getattr(allocation, option)
        if value is not None and not WORD.fullmatch(value):
            raise ConfigError(f"--{option} {value!r}: not a value that a scheduler accepts")


def refuse_launcher(config: RunConfig, scheduler: Scheduler, launcher: str) -> None:
    """Refuse a way to train over nodes that a scheduler does not have.

    Raises:
        ConfigError: if the configuration names it.
    """
    if config.training.launcher == launcher:
        raise ConfigError(
            f"launch {scheduler}: training.launcher={launcher} starts nothing there; "
            f"{REACHES[scheduler]}"
        )


def sampling_nodes(config: RunConfig, nodes: int) -> int:
    """Return how many of the nodes nothing is trained on: models can be sampled there.

    Raises:
        ConfigError: if a training asks for more nodes, or no model can be asked on the others.
    """
    trained = config.training.nodes
    if trained > nodes:
        raise ConfigError(
            f"--nodes {nodes}: training.nodes={trained}; ask for as many at least, or lower it"
        )
    if nodes > trained and not _local_roles(config) and not _placed(config):
        raise ConfigError(
            f"--nodes {nodes}: every model of this run is at an endpoint, and "
            f"{_nodes(nodes - trained)} would have nothing to do; leave out --nodes"
        )
    return nodes - trained


def placed_in_ray(config: RunConfig) -> list[str]:
    """Return the options that put policy and critic in a Ray cluster.

    There are none if the configuration itself says where a model is.
    """
    if _placed(config):
        return []
    return [f"--set={role.name}.engine.place=ray" for role in _local_roles(config)]


def unseen(lake: Path) -> str | None:
    """Say of a lake that other machines will hardly see, or None."""
    lake = lake.absolute()
    if any(lake.is_relative_to(disk) for disk in OWN_DISKS):
        return (
            f"--lake {lake}: every machine has such a folder of its own; the nodes must see this "
            "one, for its journal and for the weights that it trains"
        )
    return None


def _local_roles(config: RunConfig) -> list[NeededRole]:
    """Return policy and critic, if the run asks them and they are models here."""
    return [
        role
        for role in needed_roles(config)
        if role.name in (POLICY, CRITIC)
        and role.engine is not None
        and role.engine.kind not in ("openai", "scripted")
        and not is_endpoint(role.model)
    ]


def _placed(config: RunConfig) -> bool:
    """Whether the configuration says that a model is elsewhere."""
    engines = [role.engine for role in needed_roles(config) if role.engine is not None]
    return any(part.place != "local" for part in (config.reward, *engines))


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
