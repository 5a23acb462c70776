"""Starts a training's nodes by `srun`, as a step of the Slurm allocation that the run is in."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from .accelerate_launch import bare_environment
from .node_plan import FAREWELL_S, NODE_PROGRAM, NodePlan, planned
from .trainer_job import TrainJob

ALLOCATED = "SLURM_JOB_NUM_NODES"
"""The variable with the number of nodes of the allocation."""

CPUS = "SLURM_JOB_CPUS_PER_NODE"
"""The variable with the processors of each of its nodes, such as `72(x2),36`."""


class SrunLauncher:
    """A step with a task on each of its nodes.

    It is on the first nodes (`--relative`): models are sampled on the others. It shares the
    allocation with the step that the run itself is (`--overlap`), a task may use all processors of
    its node, and if one fails Slurm ends all.
    """

    patience_s = FAREWELL_S

    def refusal(self, nodes: int) -> str | None:
        """Say why it cannot start something on so many nodes from here; None if it may."""
        if "SLURM_JOB_ID" not in os.environ:
            return (
                "this is no Slurm allocation (SLURM_JOB_ID is not set); start the run in one, as "
                "`lpfloop launch slurm` does"
            )
        if shutil.which("srun") is None:
            return "there is no `srun` on the PATH; load Slurm's module"
        allocated = int(os.environ.get(ALLOCATED, "1"))
        if nodes > allocated:
            return (
                f"training.nodes={nodes}, and this allocation has {allocated} ({ALLOCATED}); ask "
                "for more (sbatch --nodes), or lower it"
            )
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
        cpus = [int(n) for n in re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get(CPUS, ""))]
        return [
            *("srun", f"--nodes={plan.nodes}", f"--ntasks={plan.nodes}", "--ntasks-per-node=1"),
            *("--relative=0", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=1", "--wait=0"),
            *([f"--cpus-per-task={min(cpus)}"] if cpus else []),
            *(sys.executable, "-P", "-m", NODE_PROGRAM, str(work), plan.start),
        ]

    def node_environment(self) -> Mapping[str, str]:
        """Return the command's environment, which srun hands to its tasks."""
        return bare_environment()
