# pyright: basic
"""The driver of a training's nodes on a Ray cluster: an actor on each, which runs `training_node`.

It is a process of its own, so that Ray is never in the run's, and behaves as `srun` does: it prints
what the nodes say, ends all of them when one fails or when its standard input is closed, and its
exit code is theirs. Should it be killed, Ray ends its actors, and each node ends with its actor.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from typing import Any

from ...configs.section import ConfigError
from ..workers.ray_cluster import RayCluster, ray_cluster
from .accelerate_launch import SECRETS
from .node_plan import NODE_PROGRAM, NodePlan, require_counted, seen_plan
from .trainer_faults import TrainingError, refused_on
from .training_node import end, end_with_launcher

PLACED_S = 600.0
"""Seconds in which the cluster must have room for all nodes."""

ANSWER_S = 60.0
"""Seconds in which a node's actor must answer."""

ENDED_S = 30.0
"""Seconds in which a node ends its processes; Ray then kills it with its actor."""

POLL_S = 0.5
TAKEN_ALONG = ("NCCL_", "TORCH_", "GLOO_", "UCX_", "FI_", "LPFLOOP_")
"""How the variables begin that a node's processes have from the run, not from its own machine."""


class NodeActor:
    """Runs `training_node` on the machine that Ray has placed it on."""

    def __init__(self, arguments: Sequence[str], variables: dict[str, str]) -> None:
        import ray

        self.host: str = ray.util.get_node_ip_address()
        self.node = subprocess.Popen(
            [sys.executable, "-P", "-m", NODE_PROGRAM, *arguments, self.host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
        assert self.node.stdout is not None  # noqa: S101 -- it was asked for
        os.set_blocking(self.node.stdout.fileno(), False)

    def look(self) -> tuple[bytes, int | None]:
        """Return what the node said since the last look, and its exit code once it has one."""
        code = self.node.poll()
        assert self.node.stdout is not None  # noqa: S101 -- it was asked for
        return self.node.stdout.read() or b"", code

    def end(self) -> None:
        """End the node's processes, and wait until they are gone."""
        assert self.node.stdin is not None  # noqa: S101 -- it was asked for
        self.node.stdin.close()
        self.node.wait(ENDED_S)


def main(arguments: Sequence[str]) -> int:
    """Start a plan's nodes and follow them to their end; return the exit code."""
    work, start = arguments
    try:
        plan = seen_plan(Path(work), start)
        cluster = joined()
        signal(SIGINT, end)
        signal(SIGTERM, end)
        threading.Thread(target=end_with_launcher, daemon=True).start()
        room = reserved(plan, bundle(plan, cluster))
        return followed(placed(Path(work), plan, room), room)
    except TrainingError as fault:
        print(refused_on("Ray", fault) if fault.kind == "refused" else fault, flush=True)  # noqa: T201
        return 2


def joined() -> RayCluster:
    """Join the cluster that RAY_ADDRESS names, or the one that this machine is part of.

    Raises:
        TrainingError: of kind `refused`, when there is none.
    """
    try:
        return ray_cluster()
    except ConfigError as error:
        # It is told of as a place of models.
        raise TrainingError("refused", str(error).removeprefix("place: ray: ")) from error


def bundle(plan: NodePlan, cluster: RayCluster) -> dict[str, float]:
    """Return what a node needs of a machine: on a cluster with GPUs, one for each process.

    A look needs none, for models of the run may hold them.

    Raises:
        TrainingError: of kind `refused`, when the cluster has fewer such machines than nodes, no
            GPU for what is to be divided, or GPUs that `auto` did not count.
    """
    gpus = plan.processes if cluster.gpus else 0
    if plan.divided and not gpus:
        message = "training.sharding: the cluster has no GPU, and on a CPU nothing is divided"
        raise TrainingError("refused", message)
    able = sorted(n.gpus for n in cluster.nodes if n.cpus and n.gpus >= gpus)
    if len(able) < plan.nodes:
        having = f" with {gpus} GPUs or more" if gpus else ""
        message = f"training.nodes={plan.nodes}, and the cluster has {len(able)}{having}"
        raise TrainingError("refused", message)
    require_counted(plan, able[-plan.nodes])
    return {"CPU": 1.0, **({"GPU": float(gpus)} if gpus and plan.trains else {})}


def reserved(plan: NodePlan, needed: Mapping[str, float]) -> Any:
    """Return a placement group with a bundle on each of as many machines as the plan has nodes.

    Raises:
        TrainingError: when they are not free in time.
    """
    from ray.util.placement_group import placement_group

    group = placement_group([dict(needed)] * plan.nodes, strategy="STRICT_SPREAD")
    if not group.wait(PLACED_S):
        said = ", ".join(f"{count:g} {name}" for name, count in needed.items())
        message = f"{plan.nodes} machines with {said} were not free in {PLACED_S:.0f} s"
        raise TrainingError("failed", message)
    return group


def placed(work: Path, plan: NodePlan, room: Any) -> list[Any]:
    """Return an actor for each node, which has begun."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    needed = room.bundle_specs[0]
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(TAKEN_ALONG) and not SECRETS.search(name)
    }
    kind: Any = ray.remote(NodeActor)
    return [
        kind.options(
            num_cpus=needed["CPU"],
            num_gpus=needed.get("GPU", 0),
            scheduling_strategy=PlacementGroupSchedulingStrategy(room, number),
        ).remote([str(work), plan.start, str(number)], variables)
        for number in range(plan.nodes)
    ]


def followed(nodes: list[Any], room: Any) -> int:
    """Print what the nodes say until all have ended, or one has failed; return the exit code."""
    import ray
    from ray.exceptions import RayError
    from ray.util.placement_group import remove_placement_group

    codes: list[int | None] = [None] * len(nodes)
    try:
        while None in codes:
            try:
                told = ray.get([node.look.remote() for node in nodes], timeout=ANSWER_S)
            except RayError as error:
                print(f"a node of the Ray cluster was lost: {_first_line(error)}", flush=True)  # noqa: T201
                return 1
            for said, _ in told:
                os.write(1, said)
            codes = [code for _, code in told]
            failed = next(filter(None, codes), None)
            if failed is not None:
                return failed if failed > 0 else 128 - failed
            time.sleep(POLL_S)
        return 0
    finally:
        ray.wait([node.end.remote() for node in nodes], num_returns=len(nodes), timeout=ENDED_S)
        for node in nodes:
            ray.kill(node)
        remove_placement_group(room)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


if __name__ == "__main__":
    # Ray's workers import the actor's class from the module's real name, which is not `__main__`.
    sys.exit(import_module("lpfloop.policies.trainers.ray_nodes").main(sys.argv[1:]))
