"""Starts a training's nodes as actors of a Ray cluster, by a driver in a process of its own.

This module only says how; `ray_nodes` is the driver. Ray never is in the run's own process.
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ...stores.installation import pip_install
from .accelerate_launch import bare_environment
from .node_plan import FAREWELL_S, NodePlan, planned
from .trainer_job import TrainJob

DRIVER = "lpfloop.policies.trainers.ray_nodes"

TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 -- the name of a variable
"""The variable with the cluster's token: the driver's alone, no process that trains has it."""


class RayLauncher:
    """An actor on each of the nodes."""

    patience_s = FAREWELL_S

    def refusal(self, nodes: int) -> str | None:
        """Say why it cannot start anything from here; None if it may, as far as is known here.

        Which nodes the cluster has, the driver asks.
        """
        del nodes
        if find_spec("ray") is None:
            return f"ray is not installed: {pip_install('ray')}"
        return None

    def argv(self, job: TrainJob) -> list[str]:
        """Return the command for a job, whose work folder it prepares."""
        return self.node_argv(job.output, planned(job))

    def environment(self, job: TrainJob) -> Mapping[str, str]:
        """Return the command's environment; each node finds its own GPUs."""
        del job
        return self.node_environment()

    def node_argv(self, work: Path, plan: NodePlan) -> list[str]:
        """Return the command that runs `training_node` on each node."""
        return [sys.executable, "-P", "-m", DRIVER, str(work), plan.start]

    def node_environment(self) -> Mapping[str, str]:
        """Return the driver's environment."""
        token = {TOKEN: os.environ[TOKEN]} if TOKEN in os.environ else {}
        return bare_environment() | token | {"RAY_USAGE_STATS_ENABLED": "0"}
