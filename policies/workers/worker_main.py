"""A model's process: it loads one model, then works on one call after another.

The main thread works; another reads frames for as long as the process lives, so that the parent
never waits for a full connection. An exception ends the process with its traceback in the log,
whose last line the parent reads. The process also ends when its connection closes, or when its
parent is gone. In a Ray cluster an actor does the same, see `ray_process`.
"""

import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ...configs.schema import EngineConfig
from ..engines.engine import (
    AnswerLogprob,
    EngineError,
    Feed,
    Result,
    ScoreBatch,
    final_fault,
)
from ..engines.scorers import OwnScorer, RewardScorer
from ..engines.scripted_engine import ScriptedEngine
from ..engines.transformers_engine import TransformersEngine
from ..engines.vllm_engine import VLLMEngine
from .environment import without_garbage_collection
from .model_process import (
    MEASURE,
    WATCH_S,
    Answer,
    Cancel,
    Failure,
    Frame,
    Item,
    Opening,
    Order,
    Refusal,
    Reply,
    WorkerInfo,
)

UNLOADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ImportError, AssertionError),
    *(OSError, RuntimeError, SafetensorError),
)
"""Exceptions of libraries about a setting or a file; some are also about passing conditions."""

LocalEngine = VLLMEngine | TransformersEngine | ScriptedEngine
Scorer = RewardScorer | OwnScorer
LocalModel = LocalEngine | Scorer
HeldModel = VLLMEngine | TransformersEngine | RewardScorer
"""Models that can leave their devices."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """A call of an engine or a scorer: its number, its task, its items."""

    number: int
    task: str
    feed: Feed[Any] = field(default_factory=Feed[Any])


class Inbox:
    """Sorts the frames that arrive; one thread delivers them, another one works."""

    def __init__(self) -> None:
        self.opening: queue.SimpleQueue[Opening] = queue.SimpleQueue()
        self.calls: queue.SimpleQueue[_Stream | Order] = queue.SimpleQueue()
        self._streams: dict[int, _Stream] = {}

    def deliver(self, frame: Frame) -> None:
        """Take a frame."""
        match frame:
            case Opening():
                self.opening.put(frame)
            case Order():
                self.calls.put(frame)
            case Item(call, task, batch):
                if call not in self._streams:
                    self._streams[call] = stream = _Stream(call, task)
                    self.calls.put(stream)
                self._streams[call].feed.put(batch)
            case Cancel(call):
                # A call may end before its first item.
                if stream := self._streams.pop(call, None):
                    stream.feed.cancel()


def serve(inbox: Inbox, send: Callable[[Reply], None]) -> None:
    """Load the requested model, report it, and work on calls until the process ends.

    Raises:
        EngineError: if the model cannot be loaded, or cannot go on.
    """
    opening = inbox.opening.get()
    with without_garbage_collection():
        model = load(opening)
    sleeps = isinstance(model, HeldModel) and model.sleeps
    send(WorkerInfo(window=model.window, sleeps=sleeps))
    while True:
        call = inbox.calls.get()
        if isinstance(call, Order):
            send(_carry_out(model, call))
            continue
        with closing(_replies(model, call)) as replies:
            for reply in replies:
                send(reply)
                if call.feed.cancelled:
                    break


def load(opening: Opening) -> LocalModel:
    """Load a model into this process.

    Raises:
        EngineError: if it cannot be loaded, and another try would end the same.
    """
    config, folder = opening.config, Path(opening.model)
    model: LocalModel
    try:
        match opening.kind, config:
            case "vllm", EngineConfig():
                model = VLLMEngine(opening.model, config)
            case "transformers", EngineConfig():
                model = TransformersEngine(opening.model, config)
            case _, EngineConfig():
                model = ScriptedEngine(config)
            case "function", _:
                model = OwnScorer(opening.model, config, opening.function or "")
            case _:
                model = RewardScorer(folder, config)
    except UNLOADABLE as error:
        fault = final_fault(opening.model, error)
        if isinstance(error, EngineError) or fault is None:
            raise
        raise fault from error
    return model


def _replies(model: LocalModel, stream: _Stream) -> Generator[Answer | Refusal, None, None]:
    if isinstance(model, OwnScorer):
        yield from (_own_scores(model, stream.number, batch) for batch in stream.feed)
        return
    results: Iterator[Any]
    if isinstance(model, RewardScorer):
        results = model.score(stream.feed)
    elif stream.task == MEASURE.task:
        results = (_measure(model, batch) for batch in stream.feed)
    else:
        results = model.generate(stream.feed)
    yield from (Answer(stream.number, result) for result in results)


def _own_scores(model: OwnScorer, call: int, batch: ScoreBatch) -> Answer | Refusal:
    """Score a batch; an error of the user's function is a refusal, as it would recur."""
    try:
        return Answer(call, *model.score([batch]))
    except EngineError as error:
        return Refusal(call, str(error))


def _measure(model: LocalEngine, batch: ScoreBatch) -> Result[AnswerLogprob | None]:
    logprobs = model.logprobs([request.messages for request in batch.requests])
    return Result(key=batch.key, answers=tuple(logprobs))


def _carry_out(model: LocalModel, order: Order) -> Answer | Refusal:
    """Change the model; refuse if that is impossible, because a new process will not help."""
    try:
        if order.task == "reload" and isinstance(model, VLLMEngine | TransformersEngine):
            model.reload(Path(order.model))
        elif order.task == "sleep" and isinstance(model, HeldModel):
            model.sleep()
        elif order.task == "wake" and isinstance(model, HeldModel):
            model.wake()
        else:
            return Refusal(order.call, "it holds no such weights")
    except UNLOADABLE as error:
        traceback.print_exc()
        return Refusal(order.call, f"it cannot {order.task}: {error}")
    return Answer(order.call)


def _read(connection: "Connection[Reply, Frame]", inbox: Inbox) -> None:
    """Deliver the parent's frames; end the process with the parent (the body of a thread)."""
    parent = os.getppid()
    try:
        while True:
            if connection.poll(WATCH_S):
                inbox.deliver(connection.recv())
            elif os.getppid() != parent:
                break
    except (EOFError, OSError):
        pass
    os._exit(0)


def main() -> None:
    """Serve the parent over the connection that is this process's standard input."""
    connection: Connection[Reply, Frame] = Connection(os.dup(0))
    # The parent notices this process's end by the connection's: children must not hold it open.
    os.register_at_fork(after_in_child=connection.close)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    inbox = Inbox()
    threading.Thread(target=_read, args=(connection, inbox), name="inbox", daemon=True).start()
    try:
        serve(inbox, connection.send)
    except EngineError as error:
        connection.send(Failure(str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
