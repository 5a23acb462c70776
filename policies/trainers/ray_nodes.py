# pyright: basic
"""The driver that runs a command on each of several nodes of a Ray cluster: NODES GPUS COMMAND.

As `srun` does, it prints the output of all nodes, and ends all of them if one fails or its own
standard input is closed. Ray is imported in this process only, never in the run's. If the driver is
killed, Ray ends its actors, which closes the standard input of their commands.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from ...configs.section import ConfigError
from ..workers.ray_cluster import ray_cluster
from .faults import REFUSED
from .launch import HEAD, HOSTS, PORT, RANK, SECRETS, bare_environment, free_port
from .process import ENDING_S, STARTING_S, start
from .shm_weights import discard_abandoned
from .work_folder import POLL_S

ANSWER_S = ENDING_S / 2
"""Seconds that an actor gets to answer, and its command to end before it is killed: less than the
driver itself gets."""
FORWARDED = ("NCCL_", "TORCH_", "GLOO_", "UCX_", "FI_", "LPFLOOP_")
"""Prefixes of the variables that a command gets from the run, not from its own machine."""


class NodeActor:
    """Runs the command on the machine on which Ray has placed it."""

    def __init__(self, forwarded: dict[str, str]) -> None:
        import ray

        self.host: str = ray.util.get_node_ip_address()
        # Without it torch gives the other nodes a host name that may not resolve there.
        self.environment = bare_environment() | forwarded | {"PET_LOCAL_ADDR": self.host}
        self.command: Any = None

    def rendezvous(self) -> tuple[str, str]:
        """Return the machine's address and a free port."""
        return self.host, str(free_port())

    def start(self, argv: Sequence[str]) -> None:
        """Start the command."""
        self.command = start(argv, self.environment, subprocess.PIPE)
        os.set_blocking(self.command.stdout.fileno(), False)

    def poll(self) -> tuple[bytes, int | None]:
        """Return the output since the last call, and the exit code once there is one."""
        code = self.command.poll()
        return self.command.stdout.read() or b"", code

    def end(self) -> None:
        """End the command, and wait until it is gone."""
        self.command.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.command.wait(ANSWER_S)
        with suppress(ProcessLookupError):
            os.killpg(self.command.pid, signal.SIGKILL)
        discard_abandoned()


def main(arguments: Sequence[str]) -> int:
    """Run the command on all nodes; return 0 if it succeeded on each."""
    nodes, gpus, *command = arguments
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()
    try:
        return _run(_place_actors(int(nodes), int(gpus)), command)
    except ConfigError as error:
        print(f"{REFUSED}{str(error).removeprefix('place: ray: ')}", flush=True)  # noqa: T201
        return 2


def _place_actors(nodes: int, gpus: int) -> list[Any]:
    """Return an actor on each of `nodes` machines, with `gpus` GPUs each if the cluster has any.

    Raises:
        ConfigError: if the cluster does not exist, or has fewer such machines.
    """
    cluster = ray_cluster()
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    gpus = gpus if cluster.gpus else 0
    able = sum(node.cpus > 0 and node.gpus >= gpus for node in cluster.nodes)
    if able < nodes:
        having = f" with {gpus} GPUs or more" if gpus else ""
        raise ConfigError(f"training.nodes={nodes}, and the cluster has {able}{having}")
    group = placement_group([{"CPU": 1, "GPU": gpus}] * nodes, strategy="STRICT_SPREAD")
    if not group.wait(STARTING_S):
        sys.exit(f"the cluster had no {nodes} free machines in {STARTING_S:.0f} s")
    forwarded = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(FORWARDED) and not SECRETS.search(name)
    }
    actor: Any = ray.remote(num_cpus=1, num_gpus=gpus)(NodeActor)
    places = [PlacementGroupSchedulingStrategy(group, number) for number in range(nodes)]
    return [actor.options(scheduling_strategy=place).remote(forwarded) for place in places]


def _run(actors: Sequence[Any], command: Sequence[str]) -> int:
    """Run the command on each node, and print its output, until one fails or all have ended."""
    import ray
    from ray.exceptions import RayError

    try:
        host, port = ray.get(actors[0].rendezvous.remote())
        for number, actor in enumerate(actors):
            own = {HEAD: host, PORT: port, RANK: str(number), HOSTS: f"is_host={number == 0}"}
            actor.start.remote([own.get(part, part) for part in command])
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            polled = ray.get([actor.poll.remote() for actor in actors], timeout=ANSWER_S)
            os.write(1, b"".join(output for output, _ in polled))
            codes = [code for _, code in polled]
            time.sleep(POLL_S)
        return int(any(codes))
    except RayError as error:
        sys.exit(f"a node of the Ray cluster was lost: {str(error).strip().partition(chr(10))[0]}")
    finally:
        ray.wait([a.end.remote() for a in actors], num_returns=len(actors), timeout=ANSWER_S)


def _interrupt_at_end_of_input() -> None:
    """Interrupt this process when its standard input is closed, by its parent or its death."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    # Ray's workers import the actor's class by the module's real name, which is not `__main__`.
    sys.exit(import_module("lpfloop.policies.trainers.ray_nodes").main(sys.argv[1:]))
