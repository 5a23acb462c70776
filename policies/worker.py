"""An engine or a scorer in a process of its own, behind the same protocol.

The parent starts `python -m lpfloop.policies.worker_main` in a session of its own, so that Ctrl-C
reaches the daemon alone, and talks to it in frames (see `wire`). Whatever the child prints goes to
a log file. The child ends when its input closes, so no child outlives its parent. A child that dies
raises EngineError at the next call, with the signal, the last line of its log and where the log
lies; the loop goes on.

One thread at a time may use a worker.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from ..configs.schema import EngineConfig, RewardConfig
from . import wire
from .engine import Batch, BatchResult, EngineError, Sampling, ScoreBatch, ScoreResult
from .feed import arrived

READ_SIZE = 1 << 20
CLOSE_S = 10.0
POLL_S = 0.02
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
"""Words in a variable's name that keep it from a worker in any case."""

DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Threads of several workers share the cores: spinning at barriers costs each other up to tenfold.

"""

In = TypeVar("In", Batch, ScoreBatch)
Out = TypeVar("Out", BatchResult, ScoreResult)


FIXED = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No network, no statistics, and vLLM's engine in the worker itself, not one process further."""


def worker_environment(kv_cache_gib: int, cpu_threads: int | None = None) -> dict[str, str]:
    """Return the environment of a worker: what libraries need, and no secrets.

    Several threads share a matrix product in a way that depends on how many requests are in flight,
    which moves the last bits of log-probabilities; one thread does not.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ALLOWED or name.startswith(ALLOWED_PREFIXES))
        and not any(word in name for word in NO_KEYS)
    }
    threads = {"OMP_NUM_THREADS": str(cpu_threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    cache = {"VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gib)}
    return {**DEFAULTS, **kept, **FIXED, **cache, **(threads if cpu_threads else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a ready worker says of itself; `window`: the requests it likes to have at hand."""

    engine: str
    device: str
    versions: dict[str, str]
    window: int


class Worker:
    """A child process that holds a model; it loads at once, and is waited for when used."""

    def __init__(
        self,
        opening: wire.Frame,
        *,
        log: Path,
        kv_cache_gib: int = 1,
        cpu_threads: int | None = None,
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
                env=worker_environment(kv_cache_gib, cpu_threads),
                start_new_session=True,
            )
        self._input = cast("FileIO", self._process.stdin)
        self._output = cast("FileIO", self._process.stdout)
        self._reader = threading.Thread(target=self._read, name="worker-reader", daemon=True)
        self._reader.start()
        self.send(opening)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded.

        Raises:
            EngineError: when it can not be loaded.
        """
        while self._info is None:
            frame = self._receive()
            if frame["op"] == "ready":
                del frame["op"]
                self._info = WorkerInfo(**frame)
        return self._info

    def stream(
        self, begin: wire.Frame, items: Iterable[In], coding: "Coding[In, Out]"
    ) -> Iterator[Out]:
        """Send items as long as the child has room, and give its results back as they come."""
        window = self.ready().window
        self._streams += 1
        number = self._streams
        self.send({"op": "begin", "stream": number, **begin})
        sender = _Sender(self, number, items, coding)
        try:
            while sender.more or sender.waiting:
                room = sender.more and sender.in_flight < window
                take = room and (not sender.waiting or sender.arrived())
                frame = (
                    self._receive_within(0 if take else POLL_S if room else None)
                    if sender.waiting
                    else None
                )
                if frame is not None and frame.get("stream") == number:
                    result = coding.decode(frame)
                    sender.settle(result.key)
                    yield result
                elif take:
                    sender.send_next()
        finally:
            if sender.more or sender.waiting:
                self._cancel(number)

    def close(self) -> None:
        """End the child, at the latest after a grace period by force."""
        self._input.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(CLOSE_S)
        self._output.close()

    def _cancel(self, number: int) -> None:
        """Tell the child that a stream's results are no longer wanted."""
        if self._process.poll() is None:
            self.send({"op": "cancel", "stream": number})

    def send(self, frame: wire.Frame) -> None:
        """Send one frame; the child always reads, so this does not wait for its work."""
        view = memoryview(wire.encode(frame))
        try:
            while view:
                view = view[self._input.write(view) :]
        except (BrokenPipeError, ValueError) as error:
            raise self._death() from error

    def _receive_within(self, timeout: float | None) -> wire.Frame | None:
        """Return the next frame, or None when none came in time; without a time-out, wait."""
        try:
            return self._receive(timeout)
        except queue.Empty:
            return None

    def _receive(self, timeout: float | None = None) -> wire.Frame:
        frame = self._frames.get_nowait() if timeout == 0 else self._frames.get(timeout=timeout)
        if frame is None:
            self._frames.put(None)
            raise self._death()
        if frame["op"] == "failed":
            raise EngineError(frame["message"])
        return frame

    def _read(self) -> None:
        """Take the child's frames off its pipe for as long as it lives (a thread's body)."""
        decoder = wire.Decoder()
        while data := self._output.read(READ_SIZE):
            for frame in decoder.feed(data):
                self._frames.put(frame)
        self._frames.put(None)

    def _death(self) -> EngineError:
        try:
            code = self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return EngineError(
            f"worker process {self.pid} died ({how}); its log {self._log} ends: {self._last_line()}"
        )

    def _last_line(self) -> str:
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing written)")


@dataclass(frozen=True, slots=True)
class Coding(Generic[In, Out]):
    """How a stream's items and results travel."""

    encode: Callable[[In], wire.Frame]
    decode: Callable[[wire.Frame], Out]


class _Sender(Generic[In, Out]):
    """The items of one stream: what is still to come, and what the child works on."""

    def __init__(
        self, worker: Worker, number: int, items: Iterable[In], coding: Coding[In, Out]
    ) -> None:
        self._worker = worker
        self._number = number
        self._source = iter(items)
        self._coding = coding
        self.more = True
        self.waiting: dict[str, int] = {}
        self.in_flight = 0

    def arrived(self) -> bool:
        """Whether the next item is there."""
        return arrived(self._source)

    def send_next(self) -> None:
        """Send the next item, or the end."""
        item = next(self._source, None)
        if item is None:
            self.more = False
            self._worker.send({"op": "end", "stream": self._number})
            return
        if item.key in self.waiting:
            raise ValueError(f"two batches in flight have the key {item.key}")
        self.waiting[item.key] = len(item.requests)
        self.in_flight += len(item.requests)
        self._worker.send({"op": "item", "stream": self._number, **self._coding.encode(item)})

    def settle(self, key: str) -> None:
        """Take an item off the list of those that are worked on."""
        self.in_flight -= self.waiting.pop(key)


ENGINE_CODING = Coding(wire.batch_frame, wire.read_result)
SCORER_CODING = Coding(wire.score_batch_frame, wire.read_score_result)


class WorkerEngine:
    """An `Engine` whose model lives in a worker process."""

    def __init__(self, kind: str, model: str, config: EngineConfig, *, log: Path) -> None:
        opening = _opening("engine", kind, model, config)
        self._worker = Worker(
            opening, log=log, kv_cache_gib=config.kv_cache_gib, cpu_threads=config.cpu_threads
        )

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded; say what runs it."""
        return self._worker.ready()

    def generate(self, batches: Iterable[Batch], sampling: Sampling) -> Iterator[BatchResult]:
        """Draw every request of `batches` in the worker; give each batch back when whole."""
        begin = {"sampling": wire.sampling_frame(sampling)}
        return self._worker.stream(begin, batches, ENGINE_CODING)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


class WorkerScorer:
    """A `Scorer` whose model lives in a worker process."""

    def __init__(self, model: Path, config: RewardConfig, *, log: Path) -> None:
        self._worker = Worker(_opening("scorer", "transformers", str(model), config), log=log)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded; say what runs it."""
        return self._worker.ready()

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch in the worker; give each back when whole."""
        return self._worker.stream({}, batches, SCORER_CODING)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def _opening(role: str, kind: str, model: str, config: EngineConfig | RewardConfig) -> wire.Frame:
    """Say what to load; the endpoint's key is no worker's business."""
    fields: dict[str, Any] = config.model_dump(mode="json", exclude={"api_key"})
    return {"op": "open", "role": role, "kind": kind, "model": model, "config": fields}
