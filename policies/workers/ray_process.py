# pyright: basic
"""A model's process in a Ray cluster: an actor that does the work of `worker_main`.

Ray finds the node, assigns the GPUs and reports their end. The process ends with the actor or the
node; a new process is a new actor, perhaps on another node. A driver that ends takes its actors
along.
"""

import itertools
import logging
import os
import queue
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...configs.mistakes import ConfigError
from ...stores.bucket_objects import BroughtFolder
from ..devices import ANSWER_S, installed_version
from ..engines.engine import EngineError
from .environment import worker_environment
from .model_process import (
    LOAD_S,
    WATCH_S,
    Failure,
    Frame,
    ModelProcess,
    Opening,
    Order,
    Refusal,
    Reply,
    last_line,
)
from .node_model import at_hand, model_source, opened_elsewhere
from .ray_cluster import RayRequest, error_text, ray_cluster

logger = logging.getLogger("lpfloop.worker")

THREADS = {"put": 1, "take": 1}
"""The groups in which the actor is called, so that none of them waits for the other."""

GONE = NO_CLUSTER, NO_NODE = "the Ray cluster is gone", "its node is gone"


class RayWorker:
    """The actor: one thread works, one takes frames, one hands out replies.

    It sees the GPUs that Ray gave it. Secrets of the node are removed from its environment before
    it loads anything.
    """

    def __init__(self, name: str) -> None:
        self._log = Path(tempfile.gettempdir()) / f"lpfloop-{os.getuid()}" / f"{name}.log"
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._copy: BroughtFolder | None = None
        self._early: dict[int, Frame] = {}
        self._next = 0
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._inbox: Any = None

    def describe(self) -> tuple[str | None, Path, str]:
        """Return lpfloop's version, the log, and Ray's id of the node."""
        return installed_version("lpfloop"), self._log, ray.get_runtime_context().get_node_id()

    def put(self, number: int, frame: Frame) -> None:
        """Take a frame, after the frames of lower numbers: Ray may call out of order."""
        self._early[number] = frame
        while self._next in self._early:
            self._take_in(self._early.pop(self._next))
            self._next += 1

    def take(self) -> list[Reply]:
        """Return the next replies; wait for the first."""
        replies = [self._replies.get()]
        with suppress(queue.Empty):
            while True:
                replies.append(self._replies.get_nowait())
        return replies

    def _take_in(self, frame: Frame) -> None:
        if isinstance(frame, Opening):
            self._begin(frame)
        try:
            if isinstance(frame, Opening | Order) and frame.source is not None:
                folder, copy = at_hand(frame.model, frame.source)
                if self._copy is not None:
                    self._copy.release()
                self._copy, frame = copy, replace(frame, model=folder)
        except EngineError as error:
            reason = str(error)
            opens = isinstance(frame, Opening)
            self._replies.put(Failure(reason) if opens else Refusal(frame.call, reason))
        else:
            self._inbox.deliver(frame)

    def _begin(self, opening: Opening) -> None:
        environment = worker_environment(opening.config)
        for name in [n for n in os.environ if n not in environment and not n.startswith("RAY_")]:
            del os.environ[name]
        os.environ.update(environment)
        with self._log.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        # It imports model libraries, which read the environment.
        from .worker_main import Inbox

        self._inbox = Inbox()
        worker = threading.Thread(target=self._work, name="worker", daemon=True)
        worker.start()
        threading.Thread(target=self._end_after, args=(worker,), daemon=True).start()

    def _work(self) -> None:
        """Work until the actor ends (the body of a thread)."""
        from .worker_main import serve

        try:
            serve(self._inbox, self._replies.put)
        except EngineError as error:
            self._replies.put(Failure(str(error)))
            # The head ends the actor when it has read that.
            threading.Event().wait()

    def _end_after(self, worker: threading.Thread) -> None:
        """End the actor after its worker, whose exception is in the log then."""
        worker.join()
        os._exit(1)


class RayProcess(ModelProcess):
    """An actor, which takes the resources that it requests of one node of the cluster."""

    def __init__(self, opening: Opening, wake: threading.Event, request: RayRequest) -> None:
        logger.info("a Ray worker loads %s", opening.model)
        super().__init__(wake)
        opening = opened_elsewhere(opening)
        self.started = None
        self.name = "Ray worker"
        self._source = opening.source
        self._request = request
        self._numbers = itertools.count()
        self._node, self._node_id, self._log = "", "", Path()
        self._fate, self._error = "", ""
        self._ending = threading.Lock()
        self._gone = threading.Event()
        # pyright knows an older form of `remote`.
        as_actor: Any = cast("Any", ray.remote)(concurrency_groups=THREADS)(RayWorker)
        try:
            self._actor: Any = as_actor.options(
                num_cpus=request.cpus,
                num_gpus=request.gpus,
                max_restarts=0,
                max_task_retries=0,
            ).remote(f"worker-{uuid.uuid4().hex[:12]}")
        except (RayError, RuntimeError) as error:
            raise OSError(f"the Ray cluster does not answer: {error_text(error)}") from error
        self._reader = threading.Thread(target=self._read, name="ray-reader", daemon=True)
        self._reader.start()
        self._put(opening, 0)

    def kill(self) -> None:
        """End the actor and free its resources in Ray; any thread may."""
        with self._ending:
            if self._gone.is_set():
                return
            self._gone.set()
            # RuntimeError, ValueError: the cluster itself is gone.
            with suppress(RayError, RuntimeError, ValueError):
                ray.kill(self._actor, no_restart=True)
        self._reader.join(ANSWER_S)

    close = kill

    def _put(self, frame: Frame, limit_s: float) -> None:  # noqa: ARG002 -- Ray holds it
        if self._fate or self._gone.is_set():
            raise BrokenPipeError
        if isinstance(frame, Order) and frame.task == "reload" and self._source is not None:
            folder = Path(frame.model).absolute()
            source = model_source(folder, self._source.template)
            frame = replace(frame, model=str(folder), source=source)
        put = self._actor.put.options(concurrency_group="put")
        put.remote(next(self._numbers), frame)

    def _describe_end(self) -> str:
        fate = self._fate or "its actor was ended"
        self.kill()
        return fate

    def _last_words(self) -> str:
        detail = f"Ray says: {self._error}" if self._error else "Ray gave no reason"
        if not self._node or self._fate in GONE:
            return detail
        return f"its log {self._log} on {self._node} ends: {self._last_line()}"

    def _last_line(self) -> str:
        """Read the end of the log by a task on its node."""
        there = NodeAffinitySchedulingStrategy(self._node_id, soft=False)
        read: Any = ray.remote(last_line)
        reader = read.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        try:
            return ray.get(reader.remote(self._log), timeout=ANSWER_S)
        except (RayError, RuntimeError, ValueError, OSError) as error:
            return f"(it cannot be read: {error_text(error)})"

    def _read(self) -> None:
        """Read the actor's replies while it lives (the body of a thread)."""
        try:
            refused = self._refusal()
            if refused:
                self._deliver(Failure(refused))
                return
            take = self._actor.take.options(concurrency_group="take")
            taken = take.remote()
            while True:
                replies = ray.get(taken)
                # The next call is under way while these are worked on.
                taken = take.remote()
                for reply in replies:
                    self._deliver(reply)
        except (RayError, RuntimeError) as error:
            if not self._gone.is_set():
                self._fate = self._what_ended(error)
        finally:
            self._deliver(None)

    def _refusal(self) -> str:
        """Wait for the actor; return the reason if there will never be a model."""
        met = self._actor.describe.options(concurrency_group="take").remote()
        begun, warned = time.monotonic(), False
        while not ray.wait([met], timeout=WATCH_S)[0]:
            waited_s = time.monotonic() - begun
            if waited_s > LOAD_S:
                return (
                    f"a replica waited {LOAD_S:.0f} s for {self._request} in the Ray cluster, "
                    f"which has {ray_cluster()}: lower the number of replicas, or wait until "
                    "others are done"
                )
            # An actor takes seconds to start even if there is room.
            if waited_s > ANSWER_S and not warned:
                warned, has = True, ray_cluster()
                logger.warning("a replica waits for %s in the Ray cluster: %s", self._request, has)
        try:
            version, self._log, self._node_id = ray.get(met)
        except ActorDiedError as error:
            if "ModuleNotFoundError" not in str(error) and "ImportError" not in str(error):
                raise
            return (
                "a node of the Ray cluster cannot import lpfloop: install there what is installed "
                f"here ({error_text(error)})"
            )
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        self._node = nodes[self._node_id]
        self.name = f"Ray worker on {self._node}"
        if version != installed_version("lpfloop"):
            return (
                f"{self._node} in the Ray cluster has lpfloop {version}, and this machine "
                f"{installed_version('lpfloop')}: install the same there"
            )
        self.started = time.monotonic()
        self._wake.set()
        return ""

    def _what_ended(self, error: BaseException) -> str:
        """Return a short name of the part that ended: the actor, its node or the cluster."""
        self._error = error_text(error)
        try:
            alive = {node.host for node in ray_cluster().nodes}
        except (RayError, RuntimeError, ConfigError):
            return NO_CLUSTER
        if not self._node or self._node in alive:
            return "its actor died"
        return NO_NODE
