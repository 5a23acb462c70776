# pyright: basic
"""The Ray cluster in which replicas run: joining it, and its resources.

lpfloop never starts a cluster: whoever starts it decides its resources and who can reach it.
"""

import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ...configs.engines import EngineConfig
from ...configs.mistakes import ConfigError
from ...configs.schema import RewardConfig
from ...stores.installation import pip_install
from ..devices import ANSWER_S
from .places import cpus_each, gpus_each, section_of

ADDRESS = "RAY_ADDRESS"
HOW = "start one by `ray start --head`, or join one by `ray start --address=HOST:PORT`"

_joining = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A node of the cluster, and its resources for replicas."""

    host: str
    gpus: int
    cpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """The live nodes, and the unused resources of the whole cluster."""

    nodes: tuple[RayNode, ...]
    free_gpus: int
    free_cpus: int

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def cpus(self) -> int:
        """The CPUs of all nodes."""
        return sum(node.cpus for node in self.nodes)

    def replicas(self, gpus: int) -> int:
        """Return how many replicas of `gpus` GPUs each it has room for; one if it has no GPU."""
        return sum(node.gpus // gpus for node in self.nodes) or 1

    def __str__(self) -> str:
        cpus = f"{_count(self.cpus, 'CPU')} ({self.free_cpus} free)"
        gpus = f", {_count(self.gpus, 'GPU')} ({self.free_gpus} free)" if self.gpus else ""
        return f"{_count(len(self.nodes), 'node')}, {cpus}{gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRequest:
    """The resources that one replica requests of one node."""

    gpus: int
    cpus: int

    def __str__(self) -> str:
        gpus = f"{_count(self.gpus, 'GPU')} and " if self.gpus else ""
        return f"{gpus}{_count(self.cpus, 'CPU')}"


def ray_cluster() -> RayCluster:
    """Return the cluster's resources; this process joins it if it has not yet.

    Raises:
        ConfigError: if the cluster does not exist or cannot be joined.
    """
    join_cluster()
    import ray

    free = ray.available_resources()
    return RayCluster(
        nodes=tuple(_node(node) for node in ray.nodes() if node["Alive"]),
        free_gpus=int(free.get("GPU", 0)),
        free_cpus=int(free.get("CPU", 0)),
    )


def ray_replicas(config: EngineConfig | RewardConfig, section: str | None = None) -> int:
    """Return how many replicas of a model the cluster has room for; one if it has no GPU.

    Raises:
        ConfigError: if the cluster does not exist, or no node has room for one.
    """
    ray_request(config, section)
    return ray_cluster().replicas(gpus_each(config))


def ray_request(config: EngineConfig | RewardConfig, section: str | None = None) -> RayRequest:
    """Return a replica's request of a node; in a cluster without a GPU it runs on CPUs.

    Raises:
        ConfigError: if the cluster does not exist, or all its nodes are too small.
    """
    cluster = ray_cluster()
    request = RayRequest(gpus=gpus_each(config) if cluster.gpus else 0, cpus=cpus_each(config))
    # Resources that others use now become free later.
    if not any(n.gpus >= request.gpus and n.cpus >= request.cpus for n in cluster.nodes):
        section = section or section_of(config)
        lower = f"{section}.{'tensor_parallel' if request.gpus > 1 else 'cpu_threads'}"
        raise ConfigError(
            f"{section}.place: ray: a replica needs {request} on one node, and no node of the "
            f"cluster has so much ({_best(cluster)}); lower {lower}, or add a node"
        )
    return request


def join_cluster() -> None:
    """Make this process a driver of the cluster, once.

    Raises:
        ConfigError: if Ray is missing, or the cluster does not exist or cannot be joined.
    """
    if find_spec("ray") is None:
        raise ConfigError(f"place: ray: Ray is not installed: {pip_install('ray')}")
    with _joining:
        import ray
        from ray.exceptions import RayError

        if ray.is_initialized():
            return
        address = os.environ.get(ADDRESS) or "auto"
        _require_answer(address)
        try:
            with _own_signals():
                ray.init(
                    address=address,
                    namespace=f"lpfloop-{uuid.uuid4().hex[:12]}",
                    log_to_driver=False,
                    configure_logging=False,
                )
        except ConnectionError as error:
            raise ConfigError(f"place: ray: no Ray cluster here: {HOW}") from error
        except (RuntimeError, ValueError, RayError) as error:
            raise ConfigError(
                f"place: ray: the cluster at {address} cannot be joined: {error_text(error)}"
            ) from error


def error_text(error: BaseException) -> str:
    """Return Ray's message on an error, on one line and without its ids."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not line.startswith(_IDS)]
    return " ".join(kept)[:MOST] or type(error).__name__


MOST = 600
_IDS = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:", "node_id:")


def _require_answer(address: str) -> None:
    """Refuse an address that does not answer, for which Ray itself waits for minutes."""
    if address.startswith("ray://"):
        raise ConfigError(
            f"place: ray: {ADDRESS}={address}: Ray's client is not enough: make this machine a "
            "node by `ray start --address=HOST:PORT --num-cpus=0`, and leave the variable out"
        )
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except OSError as error:
        raise ConfigError(
            f"place: ray: no answer at {ADDRESS}={address} ({error.strerror or error}): {HOW}"
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM: Ray would make it exit at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _node(node: Mapping[str, Any]) -> RayNode:
    has = node["Resources"]
    return RayNode(
        host=node["NodeManagerAddress"],
        gpus=int(has.get("GPU", 0)),
        cpus=int(has.get("CPU", 0)),
    )


def _best(cluster: RayCluster) -> str:
    most = max(cluster.nodes, key=lambda node: (node.gpus, node.cpus), default=None)
    return f"at most {RayRequest(gpus=most.gpus, cpus=most.cpus)}" if most else "it has none"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
