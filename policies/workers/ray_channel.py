# pyright: basic
"""The way to a worker in a Ray cluster: an actor on its node holds the worker's pipe.

Ray finds the node, gives the GPUs and tells of their end. Whatever ends there, be it the worker,
the actor or the node, ends the channel; a new worker gets a new actor, perhaps on another node. A
driver that ends takes its actors and placement groups along.
"""

import itertools
import logging
import queue
import threading
import time
import uuid
from contextlib import suppress
from typing import Any, cast

import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...configs.section import ConfigError
from ..devices import installed
from . import wire
from .channel import CLOSE_S, ChannelEndedError
from .ray_agent import RayAgent
from .ray_cluster import RayRequest, ray_cluster, said
from .worker import Starter, Worker

logger = logging.getLogger("lpfloop.worker")

PLACEMENT_S = 1800.0
"""How long a replica waits for room in a busy cluster."""

LOOK_S = 5.0
"""Seconds between looks at what is waited for; after the first it is said."""

TAKE_S = 20.0
"""How long a call waits on the node for the worker's next frame."""

THREADS = {"put": 1, "take": 1, "order": 4}
"""The groups in which the agent is called, so that none of them waits for another."""


class RayChannel:
    """A worker's process on a node of the cluster; frames go through an actor beside it."""

    def __init__(self, request: RayRequest) -> None:
        self._request = request
        self._numbers = itertools.count()
        self._frames: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        self._node = ""
        self._lost = ""
        self._words = "it has said nothing"
        self._ending = threading.Lock()
        self._gone = threading.Event()
        self._over = threading.Event()
        name = f"worker-{uuid.uuid4().hex[:12]}"
        self._group = placement_group([dict(request.bundle)], strategy="STRICT_PACK", name=name)
        placed = PlacementGroupSchedulingStrategy(self._group)
        # pyright knows an older form of `remote`.
        as_actor: Any = cast("Any", ray.remote)(concurrency_groups=THREADS)(RayAgent)
        self._agent: Any = as_actor.options(
            num_cpus=request.cpus,
            num_gpus=request.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=placed,
        ).remote(name)
        self._reader = threading.Thread(target=self._read, name="ray-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> None:
        """None: the worker's process is on another machine."""
        return

    @property
    def name(self) -> str:
        """What the worker is called in messages."""
        return f"Ray worker on {self._node}" if self._node else "Ray worker"

    @property
    def waits(self) -> bool:
        """Whether no node has had room yet."""
        return not (self._node or self._over.is_set())

    def send(self, frame: wire.Frame, limit_s: float) -> bool:  # noqa: ARG002 -- Ray holds it
        """Send one frame; what the worker does not read yet waits on its node."""
        if self._over.is_set():
            raise ChannelEndedError
        self._call("put", next(self._numbers), frame)
        return True

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:
            # Put the end mark back: later calls must see it, too.
            self._frames.put(None)
            raise ChannelEndedError
        return frame

    def end(self) -> str:
        """Wait for the worker's end, and say how it ended, or that its actor or node did."""
        how = self._lost
        if not how:
            try:
                how, self._words = _got(self._call("end"), 3 * CLOSE_S)
            except RayError as error:
                how = self._fate(error)
        self.kill()
        return how

    def last_words(self) -> str:
        """Say where the worker's log is, and what it ends with, or what Ray says."""
        return self._words

    def kill(self) -> None:
        """End the worker, its actor and what Ray set aside for them; any thread may."""
        with self._ending:
            if self._gone.is_set():
                return
            self._gone.set()
            if self._node and not self._lost:
                with suppress(RayError):
                    self._words = _got(self._call("kill"), CLOSE_S)
            # RuntimeError, ValueError: the cluster itself is gone.
            with suppress(RayError, RuntimeError, ValueError):
                ray.kill(self._agent, no_restart=True)
                remove_placement_group(self._group)
        self._reader.join(CLOSE_S)

    def close(self) -> None:
        """End the worker; after a grace period, kill it."""
        if self._node and not self._lost:
            with suppress(RayError):
                _got(self._call("close"), 2 * CLOSE_S)
        self.kill()

    def _call(self, order: str, *given: Any) -> Any:
        group = order if order in THREADS else "order"
        return getattr(self._agent, order).options(concurrency_group=group).remote(*given)

    def _read(self) -> None:
        """Read the worker's frames while its actor lives (the body of a thread)."""
        try:
            refused = self._refusal()
            if refused:
                self._frames.put({"op": "failed", "message": refused})
                return
            taking, ended = self._call("take", TAKE_S), False
            while not ended:
                frames, ended = _got(taking)
                # The next call is under way while these are worked on.
                taking = None if ended else self._call("take", TAKE_S)
                for frame in frames:
                    self._frames.put(frame)
        except (RayError, RuntimeError) as error:
            if not self._gone.is_set():
                self._lost = self._fate(error)
        finally:
            self._over.set()
            self._frames.put(None)

    def _refusal(self) -> str:
        """Wait for the actor; return why there will never be a worker, if so."""
        if not self._placed():
            return "" if self._gone.is_set() else self._no_room()
        try:
            met: dict[str, str] = _got(self._call("met"))
        except ActorDiedError as error:
            if "ModuleNotFoundError" not in str(error) and "ImportError" not in str(error):
                raise
            return (
                "a node of the Ray cluster cannot import lpfloop: install there what is installed "
                f"here ({said(error)})"
            )
        self._node = self._host()
        here = installed("lpfloop")
        if met["version"] != here:
            return (
                f"{self._node} in the Ray cluster has lpfloop {met['version']}, and this machine "
                f"{here}: install the same there"
            )
        self._words = f"its log is {met['log']} on {self._node}"
        return ""

    def _placed(self) -> bool:
        """Wait until a node has room; say so when that takes long."""
        started, told = time.monotonic(), False
        while not self._group.wait(LOOK_S):
            if self._gone.is_set() or time.monotonic() - started > PLACEMENT_S:
                return False
            if not told:
                told = True
                logger.warning(
                    "a replica waits for %s in the Ray cluster, which has %s",
                    self._request,
                    ray_cluster(),
                )
        return True

    def _no_room(self) -> str:
        return (
            f"a replica waited {PLACEMENT_S:.0f} s for {self._request} in the Ray cluster, which "
            f"has {ray_cluster()}: lower the number of replicas, or wait until others are done"
        )

    def _host(self) -> str:
        """Return the address of the node that gave what was asked for."""
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        return nodes[next(iter(placement_group_table(self._group)["bundles_to_node_id"].values()))]

    def _fate(self, error: BaseException) -> str:
        """Say briefly what ended, and keep what Ray tells of it."""
        self._words = f"Ray says: {said(error)}"
        try:
            alive = {node.host for node in ray_cluster().nodes}
        except (RayError, RuntimeError, ConfigError):
            return "the Ray cluster is gone"
        if not self._node or self._node in alive:
            return "its actor died"
        return "its node is gone"


def ray_workers(request: RayRequest) -> Starter:
    """Return what starts workers in the Ray cluster, each with what `request` names.

    It raises OSError if the cluster is gone.
    """

    def start(opening: wire.Frame) -> Worker:
        logger.info("a Ray worker loads %s (%s)", opening["model"], opening["role"])
        try:
            return Worker(opening, RayChannel(request))
        except (RayError, RuntimeError) as error:
            raise OSError(f"the Ray cluster does not answer: {said(error)}") from error

    return start


def _got(call: Any, limit_s: float | None = None) -> Any:
    """Wait for what a call of the agent returns."""
    return ray.get(call, timeout=limit_s)
