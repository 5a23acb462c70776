"""A node's part of a training: started by `srun` or by Ray, it runs `accelerate launch` there.

It first proves that this machine sees the work folder, and where all nodes meet; then its processes
train, until they have ended or its standard input is closed. Where a plan trains nothing, that
proof is all. Its arguments are the work folder, the plan's `start` and, where Slurm's
variables do not tell them, the node's number and the name that the others reach it by.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...configs.section import ConfigError
from .accelerate_launch import MeetingPoint, accelerate_argv, child_environment
from .node_plan import NodePlan, meet, require_counted, seen_plan
from .trainer_faults import TrainingError, refused_on
from .trainer_job import read_job
from .trainer_process import discard_memory_of, running
from .training_fit import TrainingFit
from .training_places import training_gpus


def end_with_launcher() -> None:
    """End this process in order when its standard input is closed: the launcher's parent has."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def end(number: int, _frame: object) -> None:
    """Leave all that runs here behind in order, as if by the signal of this number."""
    sys.exit(128 + number)


def let_be(_number: int, _frame: object) -> None:
    """Do nothing at Slurm's SIGTERM before an allocation's end.

    The run gets it, too: it lets the training save and end.
    """


def main(arguments: Sequence[str]) -> int:
    """Take part in one start of a training; return the exit code."""
    work, start, *rest = arguments
    node, host = rest or _slurms()
    # What an actor of Ray starts has it blocked, and would never end.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, let_be)
    threading.Thread(target=end_with_launcher, daemon=True).start()
    try:
        plan = seen_plan(Path(work), start)
        point = meet(Path(work), plan, node=int(node), host=host)
        if plan.trains:
            return trained(Path(work), plan, int(node), point)
        require_gpus(plan)
    except TrainingError as fault:
        print(refused_on(host, fault), flush=True)  # noqa: T201 -- the launcher's log
        return 2
    return 0


def _slurms() -> tuple[str, str]:
    """Return the number and the name of this node, as Slurm tells its tasks."""
    return os.environ["SLURM_PROCID"], os.environ.get("SLURMD_NODENAME", socket.gethostname())


def trained(work: Path, plan: NodePlan, node: int, point: MeetingPoint) -> int:
    """Run this node's processes of the job to their end; return their launcher's exit code."""
    told = read_job(work / "job.json")
    fit = replace(told.fit, devices=plan.devices, nodes=plan.nodes, launcher=plan.launcher)
    job = replace(told, fit=fit)
    argv = accelerate_argv(job, node=node, meeting=point if plan.nodes > 1 else None)
    try:
        with running(argv, child_environment(job), None, patience_s=0) as child:
            return child.wait()
    finally:
        if node == 0:
            discard_memory_of(job)


def require_gpus(plan: NodePlan) -> None:
    """Refuse a node with fewer GPUs than its share of the processes, or with some left uncounted.

    Raises:
        TrainingError: of kind `refused`, with both numbers.
    """
    try:
        found = len(training_gpus(TrainingFit(devices=plan.devices)))
    except ConfigError as error:
        raise TrainingError("refused", str(error)) from error
    if found and plan.processes > found:
        message = f"{plan.processes} of training.processes are its share, and it shows {found} GPUs"
        raise TrainingError("refused", message)
    require_counted(plan, found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
