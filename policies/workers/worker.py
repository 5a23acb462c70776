"""A child process that holds a model, and the transport to it; no policy.

The parent starts `worker_main` as a process in a session of its own, so that Ctrl-C
reaches the daemon alone, and talks to it in frames (see `wire`). Whatever the child prints goes to
a log file. The child ends when its input closes, so no child outlives its parent. A child that dies
or hangs raises WorkerDeathError; `supervised` decides what to do about it.

A worker is not safe for use by several threads at once.
"""

import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import cast

from ..engines.engine import EngineError, UnloadableError
from . import wire
from .places import DeviceGroup

READ_SIZE = 1 << 20
CLOSE_S = 10.0
LOG_TAIL = 65536

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
    """What a ready worker reports; `window` is how many requests to send ahead."""

    engine: str
    device: str
    versions: dict[str, str]
    window: int


class WorkerDeathError(EngineError):
    """A worker that died or hangs; `how` says so briefly, without a process id.

    The message also names the log, and the last line in it.
    """

    def __init__(self, message: str, how: str) -> None:
        super().__init__(message)
        self.how = how


class Worker:
    """A child process that starts to load its model at once; the first use waits for it."""

    def __init__(
        self,
        opening: wire.Frame,
        *,
        log: Path,
        kv_cache_gib: int = 1,
        cpu_threads: int | None = None,
        devices: DeviceGroup = DeviceGroup(),  # noqa: B008 -- frozen
    ) -> None:
        self._log = log
        self._frames: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        self._streams = 0
        self._info: WorkerInfo | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.worker_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                env=worker_environment(kv_cache_gib, cpu_threads, devices),
                start_new_session=True,
            )
        self._input = cast("FileIO", self._process.stdin)
        self._output = cast("FileIO", self._process.stdout)
        os.set_blocking(self._input.fileno(), False)
        self._started = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="worker-reader", daemon=True)
        self._reader.start()
        self._gone = False
        # `ready` reports a child that died at once.
        with suppress(WorkerDeathError):
            self.send(opening, CLOSE_S)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ready(self, limit_s: float) -> WorkerInfo:
        """Wait until the model is loaded, at most `limit_s` seconds from the start.

        Raises:
            UnloadableError: when the child reports that it cannot be loaded.
            WorkerDeathError: when the child dies or takes too long.
        """
        while self._info is None:
            left = self._started + limit_s - time.monotonic()
            frame = self.receive(max(left, 0))
            if frame is None:
                raise self.hung(f"not loaded after {limit_s:.0f} s")
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
        """Send one frame; a busy child still reads, so this does not wait for its work.

        Raises:
            WorkerDeathError: when the child has died, or has read nothing for `limit_s` seconds.
        """
        view = memoryview(wire.encode(frame))
        writable = select.poll()
        try:
            writable.register(self._input, select.POLLOUT)
            while view:
                # Writing to a full pipe returns None.
                view = view[self._input.write(view) or 0 :]
                if view and not writable.poll(limit_s * 1000):
                    raise self.hung(f"nothing read for {limit_s:.0f} s")
        except (BrokenPipeError, ValueError) as error:  # ValueError: closed on this side
            raise self._death() from error

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds.

        Raises:
            WorkerDeathError: when the child has died, or reports that it cannot go on.
        """
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:
            self._frames.put(None)
            # Put the end mark back: later calls must see it, too.
            raise self._death()
        if frame["op"] == "failed" and self._info is not None:
            self.kill()
            raise self._told("gave up", frame["message"])
        return frame

    def hung(self, how: str) -> WorkerDeathError:
        """Kill a child that hangs; return the error to raise."""
        self.kill()
        return self._told("hangs", how)

    def kill(self) -> None:
        """End the child and every process of its group at once."""
        if self._gone:
            return
        # Once only: the id of a group that is gone may be reused. Some systems raise
        # PermissionError if only the leader, already reaped, is left.
        self._gone = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._input.close()
        self._reader.join(CLOSE_S)
        self._output.close()

    def close(self) -> None:
        """End the child; after a grace period, kill it."""
        self._input.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self.kill()

    def _read(self) -> None:
        """Read the child's frames from its pipe while it lives (the body of a thread)."""
        decoder = wire.Decoder()
        while data := self._output.read(READ_SIZE):
            for frame in decoder.feed(data):
                self._frames.put(frame)
        self._frames.put(None)

    def _death(self) -> WorkerDeathError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self.kill()
        code = self._process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return self._told("died", how)

    def _told(self, verb: str, how: str) -> WorkerDeathError:
        return WorkerDeathError(
            f"worker process {self.pid} {verb} ({how}); "
            f"its log {self._log} ends: {self._last_line()}",
            how,
        )

    def _last_line(self) -> str:
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing written)")
