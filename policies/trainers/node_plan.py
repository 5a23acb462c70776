"""What the nodes of a training agree on by files in its work folder, which all of them must see.

The parent writes a plan under a name of its own (`start`), which each node must find; the first
node writes where the others meet it. So a node that sees another disk under the same path is told
of at once, before it computes anything that nobody would find.
"""

import json
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ...configs.section import Devices
from ...stores.durable import write_file
from .accelerate_launch import MeetingPoint, write_settings
from .trainer_faults import TrainingError
from .trainer_job import TrainJob, read_json

PLAN, MEETING = "nodes.json", "meeting.json"

SEEN_S = 90.0
"""Seconds in which a file that one node writes is seen by the others: NFS caches for up to 60."""

LOOK_S = 0.2
FAREWELL_S = 80.0
"""Seconds in which a launcher ends what runs on all nodes."""

NODE_PROGRAM = "lpfloop.policies.trainers.training_node"
"""The module that a launcher runs on each node, with the work folder and the plan's `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One start of a training's nodes; with no job they only prove that they see its folder.

    `start` names it, among others in the same folder; `processes` are those of one node; `divided`:
    they need GPUs, for on a CPU nothing is divided; `blind`: `auto` chose their number on a machine
    that shows no GPU.
    """

    start: str
    nodes: int
    processes: int
    launcher: Literal["local", "srun", "ray"]
    devices: Devices = "auto"
    divided: bool = False
    blind: bool = False
    trains: bool = True


def new_start() -> str:
    """Return a name that no other start has."""
    return secrets.token_hex(8)


def planned(job: TrainJob) -> NodePlan:
    """Leave in a job's work folder what its nodes need to know; return their plan."""
    write_settings(job)
    plan = NodePlan(
        start=new_start(),
        nodes=job.fit.nodes,
        processes=job.processes_per_node,
        launcher=job.fit.launcher,
        devices=job.fit.devices,
        divided=job.fit.sharding != "none",
    )
    return write_plan(job.output, plan)


def write_plan(work: Path, plan: NodePlan) -> NodePlan:
    """Leave a plan where the nodes look for it, and return it."""
    write_file(work / PLAN, json.dumps(asdict(plan)).encode())
    return plan


def seen_plan(work: Path, start: str) -> NodePlan:
    """Return the plan of a start, once this machine sees it.

    Raises:
        TrainingError: of kind `refused`, when it does not.
    """
    told = _awaited(work / PLAN, start)
    if told is None:
        message = (
            f"this host does not see {work} as the host does that started it: a training over "
            "nodes needs a disk that all of them share; move the lake there (--lake)"
        )
        raise TrainingError("refused", message)
    devices: Any = told["devices"]
    told["devices"] = devices if devices == "auto" else tuple(devices)
    return NodePlan(**told)


def meet(work: Path, plan: NodePlan, *, node: int, host: str) -> MeetingPoint:
    """Return where the nodes meet: the first of them chooses a free port and writes it down.

    Raises:
        TrainingError: of kind `refused`, when this node does not see what the first one writes.
    """
    if node == 0:
        point = MeetingPoint(host=host, port=free_port())
        write_file(work / MEETING, json.dumps({"start": plan.start, **asdict(point)}).encode())
        return point
    told = _awaited(work / MEETING, plan.start)
    if told is None:
        message = (
            f"this host does not see in {work} what the first node writes there, or that node did "
            "not start: a training over nodes needs a disk that all of them share"
        )
        raise TrainingError("refused", message)
    return MeetingPoint(host=told["host"], port=told["port"])


def require_counted(plan: NodePlan, gpus: int) -> None:
    """Refuse a number of processes that `auto` chose without seeing the GPUs that a node has.

    Raises:
        TrainingError: of kind `refused`, with the number for all nodes.
    """
    if plan.blind and gpus:
        message = (
            f"training.processes=auto counts the GPUs of the machine of the run, which shows none, "
            f"and the nodes have {gpus} each: set training.processes={gpus * plan.nodes}, or less"
        )
        raise TrainingError("refused", message)


def has_met(work: Path, plan: NodePlan) -> bool:
    """Whether this machine sees what the first node wrote."""
    return _awaited(work / MEETING, plan.start) is not None


def _awaited(path: Path, start: str) -> dict[str, Any] | None:
    """Return a file of one start, once it is there; None if it does not come."""
    deadline = time.monotonic() + SEEN_S
    while True:
        told = read_json(path)
        if told is not None and told.get("start") == start:
            return told
        if time.monotonic() >= deadline:
            return None
        time.sleep(LOOK_S)


def free_port() -> int:
    """Return a port that nobody listens at on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
