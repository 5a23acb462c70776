"""What starts the processes of a training: on this machine, by Slurm, by Ray.

A launcher is a command that lives as long as what it started. It ends all of it, on whatever node,
when its standard input is closed, which the death of its parent does, too; one that ends by itself
leaves nothing behind. So the parent follows each of them alike.
On other machines the command runs `training_node`, which is to its node what the parent is to this
one: `accelerate launch` below it has the same settings everywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from .accelerate_launch import (
    accelerate_argv,
    child_environment,
    needs_launcher,
    single_argv,
    write_settings,
)
from .node_plan import NodePlan
from .ray_launcher import RayLauncher
from .srun_launcher import SrunLauncher
from .trainer_job import TrainJob


class Launcher(Protocol):
    """Starts the processes of a training by one command.

    `patience_s` are the seconds that the command gets to end what it started, before it is killed.
    """

    patience_s: float

    def refusal(self, nodes: int) -> str | None:
        """Say why it cannot start something on so many nodes from here; None if it may."""
        ...

    def argv(self, job: TrainJob) -> list[str]:
        """Return the command for a job, whose work folder it prepares."""
        ...

    def environment(self, job: TrainJob) -> Mapping[str, str]:
        """Return the command's environment.

        Raises:
            TrainingError: of kind `refused`, when the GPUs that it needs here are not there.
        """
        ...


class NodeLauncher(Launcher, Protocol):
    """Starts `training_node` on each node of a plan, be it to train or to look."""

    def node_argv(self, work: Path, plan: NodePlan) -> list[str]:
        """Return the command."""
        ...

    def node_environment(self) -> Mapping[str, str]:
        """Return the command's environment."""
        ...


class LocalLauncher:
    """The processes of a training on this machine."""

    patience_s = 0.0

    def refusal(self, nodes: int) -> str | None:
        """Say why it cannot start something on so many nodes."""
        return None if nodes == 1 else "it starts processes on this machine alone"

    def argv(self, job: TrainJob) -> list[str]:
        """Return the command for a job, whose work folder it prepares."""
        if not needs_launcher(job):
            return single_argv(job)
        write_settings(job)
        return accelerate_argv(job)

    def environment(self, job: TrainJob) -> Mapping[str, str]:
        """Return the environment of the processes themselves."""
        return child_environment(job)


LauncherName = Literal["local", "srun", "ray"]

NODE_LAUNCHERS: Mapping[LauncherName, NodeLauncher] = {"srun": SrunLauncher(), "ray": RayLauncher()}
"""Those that reach other machines."""

LAUNCHERS: Mapping[LauncherName, Launcher] = {"local": LocalLauncher(), **NODE_LAUNCHERS}
"""By `training.launcher`."""
