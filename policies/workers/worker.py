"""A process that holds a model, at the other end of a channel; no policy.

One that dies or hangs raises WorkerDeathError; `supervised` decides what to do about it. A worker
is for one thread at a time, but any may kill and close it.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.engine import EngineError, UnloadableError
from . import wire
from .channel import Channel, ChannelEndedError, PipeChannel
from .places import DeviceGroup

logger = logging.getLogger("lpfloop.worker")

OPENING_S = 10.0
"""Seconds that a process may take to read what it is to load, once it has started."""

ALLOWED = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "NO_PROXY"),
        *("PATH", "SHELL", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV"),
    }
)
ALLOWED_PREFIXES = (
    *("CUDA", "DNNL", "GOMP", "HIP", "HSA", "KMP", "LC_", "MALLOC", "MKL", "NCCL", "NVIDIA", "OMP"),
    *("ONEDNN", "OPENBLAS", "PYTHON", "PYTORCH", "ROCM", "TORCH", "TRITON", "VLLM", "XDG"),
)
NO_KEYS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""A variable whose name contains one of these never reaches a worker."""

DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Workers share the cores: threads that spin at barriers slow others up to tenfold."""

FIXED = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No network, no statistics, and vLLM's engine in the worker itself, not in a child of it.

Nor does a child of the worker import modules from the current folder.
"""


def worker_environment(
    kv_cache_gib: int,
    cpu_threads: int | None = None,
    devices: DeviceGroup = DeviceGroup(),  # noqa: B008 -- frozen
) -> dict[str, str]:
    """Return a worker's environment: what libraries need, without secrets.

    It sees the GPUs of `devices` alone; by default all that this process sees.

    Several threads split a matrix product in a way that depends on the number of requests in
    flight, which changes the last bits of log-probabilities; one thread does not.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ALLOWED or name.startswith(ALLOWED_PREFIXES))
        and not any(word in name for word in NO_KEYS)
    }
    threads = {"OMP_NUM_THREADS": str(cpu_threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    cache = {"VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gib)}
    own = {**cache, **(threads if cpu_threads else {}), **devices.environment}
    return {**DEFAULTS, **kept, **FIXED, **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a ready worker reports.

    `window` is how many requests to send ahead; `sleeps`: its model can leave its devices.
    """

    engine: str
    device: str
    versions: dict[str, str]
    window: int
    sleeps: bool


class WorkerDeathError(EngineError):
    """A worker that died or hangs; `how` says so briefly, without a process id.

    The message also names the log, and the last line in it.
    """

    def __init__(self, message: str, how: str) -> None:
        super().__init__(message)
        self.how = how


class Worker:
    """A process that starts to load its model at once; the first use waits for it."""

    def __init__(self, opening: wire.Frame, channel: Channel) -> None:
        self._channel = channel
        self._streams = 0
        self._info: WorkerInfo | None = None
        self._started = time.monotonic()
        # `ready` reports one that died at once.
        with suppress(WorkerDeathError):
            self.send(opening, OPENING_S)

    @property
    def pid(self) -> int | None:
        """The worker's process id, if it runs on this machine."""
        return self._channel.pid

    @property
    def waits(self) -> bool:
        """Whether no node has had room for it yet."""
        return self._channel.waits

    def ready(self, limit_s: float, within_s: float) -> WorkerInfo | None:
        """Wait until the model is loaded; return None if it is not `within_s` seconds from now.

        It has `limit_s` seconds from its start on a node.

        Raises:
            UnloadableError: when the worker reports that it cannot be loaded.
            WorkerDeathError: when the worker dies or takes too long.
        """
        until = time.monotonic() + within_s
        while self._info is None:
            now = time.monotonic()
            if self._channel.waits:
                self._started = now
            left = self._started + limit_s - now
            frame = self.receive(max(0.0, min(left, until - now)))
            if frame is None and left <= 0:
                raise self.hung(f"not loaded after {limit_s:.0f} s")
            if frame is None:
                return None
            if frame["op"] == "failed":
                raise UnloadableError(frame["message"])
            if frame["op"] == "ready":
                del frame["op"]
                self._info = WorkerInfo(**frame)
        return self._info

    def begin(self, task: str, limit_s: float) -> int:
        """Begin a stream of batches for one task; return its number, which its results carry."""
        self._streams += 1
        self.send({"op": "begin", "stream": self._streams, "task": task}, limit_s)
        return self._streams

    def send(self, frame: wire.Frame, limit_s: float) -> None:
        """Send one frame; a busy worker still reads, so this does not wait for its work.

        Raises:
            WorkerDeathError: when the worker has died, or has read nothing for `limit_s` seconds.
        """
        try:
            sent = self._channel.send(frame, limit_s)
        except ChannelEndedError as error:
            raise self._told("died", self._channel.end()) from error
        if not sent:
            raise self.hung(f"nothing read for {limit_s:.0f} s")

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds.

        Raises:
            WorkerDeathError: when the worker has died, or reports that it cannot go on.
        """
        try:
            frame = self._channel.receive(timeout_s)
        except ChannelEndedError as error:
            raise self._told("died", self._channel.end()) from error
        if frame is not None and frame["op"] == "failed" and self._info is not None:
            self.kill()
            raise self._told("gave up", frame["message"])
        return frame

    def hung(self, how: str) -> WorkerDeathError:
        """Kill a worker that hangs; return the error to raise."""
        self.kill()
        return self._told("hangs", how)

    def kill(self) -> None:
        """End the worker, and every process that it started, at once."""
        self._channel.kill()

    def close(self) -> None:
        """End the worker; after a grace period, kill it."""
        self._channel.close()

    def _told(self, verb: str, how: str) -> WorkerDeathError:
        channel = self._channel
        message = f"{channel.name} {verb} ({how}); {channel.last_words()}"
        return WorkerDeathError(message, how)


Starter = Callable[[wire.Frame], Worker]
"""Starts a worker that loads what a frame says; where, and with what, the starter knows."""


def child_workers(
    *,
    log: Path,
    devices: DeviceGroup = DeviceGroup(),  # noqa: B008 -- frozen
) -> Starter:
    """Return what starts workers as child processes on this machine, which print to `log`.

    It raises OSError if no process can be started.
    """

    def start(opening: wire.Frame) -> Worker:
        logger.info("a worker process loads %s (%s)", opening["model"], opening["role"])
        environment = opened_environment(opening, devices)
        return Worker(opening, PipeChannel(log=log, environment=environment))

    return start


def opened_environment(opening: wire.Frame, devices: DeviceGroup) -> dict[str, str]:
    """Return the environment of a worker, with the cache and the threads of what it opens."""
    config: dict[str, Any] = opening["config"]
    return worker_environment(config.get("kv_cache_gib", 1), config.get("cpu_threads"), devices)
