"""The messages between a model's process and its parent, as pickled dataclasses; kinds of work.

The process gets an `Opening` first. Then come calls, each with a unique number: a call is a stream
of items that ends with a `Cancel`, or a single `Order`. Until the model is loaded the only replies
are a `WorkerInfo` or a `Failure`.
"""

import copyreg
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    Completion,
    Request,
    Result,
    ScoreBatch,
    ScoreRequest,
    failed,
)

LOAD_S = 3600.0
"""Seconds that a model may take to load, reload, fall asleep or wake; and that a replica waits for
room in a busy Ray cluster.
"""
WATCH_S = 2.0
"""Seconds between polls of a process or cluster that sends no signal, such as a parent."""

OrderTask = Literal["reload", "sleep", "wake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtModel:
    """The data by which another machine finds a model, and checks that it is the right one.

    `identity` is the digest of model and chat template together. `address` is where in a bucket
    the model can be downloaded, if it was published there.
    """

    identity: str
    template: str | None
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The model to load; the type of `config` decides whether as engine or scorer.

    `model` is a folder, or the place of a reward function, which must then have the identity
    `function`. `sought` is given to a process on another machine.
    """

    kind: str
    model: str
    config: EngineConfig | RewardConfig
    function: str | None = None
    sought: SoughtModel | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A batch of a call."""

    call: int
    task: str
    batch: Batch | ScoreBatch


@dataclass(frozen=True, slots=True)
class Cancel:
    """The end of a call: answers that are still missing are not needed any more."""

    call: int


@dataclass(frozen=True, slots=True)
class Order:
    """A change of the loaded model; `model` and `sought` are only for `reload`."""

    call: int
    task: OrderTask
    model: str = ""
    sought: SoughtModel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """The loaded model.

    `window` is how many requests to send ahead; `sleeps`: whether it can leave its devices.
    """

    engine: str
    device: str
    versions: dict[str, str]
    window: int
    sleeps: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one item of a call; None for an order that was carried out."""

    call: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an item or an order of a call fails, in this process and in any other."""

    call: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why the process ends: its model cannot be loaded, or cannot go on."""

    message: str


Frame = Opening | Item | Cancel | Order
Reply = WorkerInfo | Answer | Refusal | Failure

# Dataclasses with slots pickle field by field in Python; a tuple of the fields takes a fifth of the
# time. `Request.example` is a function that only a scripted judge in this process calls.
_SENT: dict[type[Any], tuple[str, ...]] = {
    Request: ("example",),
    Completion: (),
    ScoreRequest: (),
    Message: (),
}
_FIELDS = {
    kind: tuple(one.name for one in fields(kind) if one.name not in left_out)
    for kind, left_out in _SENT.items()
}


def _rebuilt(kind: type[Any], values: tuple[Any, ...]) -> Any:
    return kind(**dict(zip(_FIELDS[kind], values, strict=True)))


def _register(kind: type[Any]) -> None:
    values = attrgetter(*_FIELDS[kind])

    def reduced(sent: object) -> tuple[Any, ...]:
        return _rebuilt, (kind, values(sent))

    copyreg.pickle(kind, reduced)


for _kind in _FIELDS:
    _register(_kind)

In = TypeVar("In", Batch, ScoreBatch)
Ans = TypeVar("Ans")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind(Generic[In, Ans]):
    """One kind of work.

    `worked`: whether the model computed an answer, which it does not for an overlong prompt.
    `refusal` makes the answer of a request that cannot be answered, from its id and the reason; it
    is None if a missing answer means that the model is at fault.
    """

    task: str
    worked: Callable[[Ans], bool]
    refusal: Callable[[str, str], Ans] | None

    def good(self, batch: In, result: Result[Ans]) -> In | None:
        """Return a batch of one request that the model has answered, or None."""
        pairs = zip(batch.requests, result.answers, strict=True)
        found = next((request for request, answer in pairs if self.worked(answer)), None)
        return None if found is None else replace(batch, requests=(found,))


GENERATE: WorkKind[Batch, Completion] = WorkKind(
    task="generate",
    worked=lambda completion: completion.completion_tokens > 0,
    refusal=failed,
)

SCORE: WorkKind[ScoreBatch, float | None] = WorkKind(
    task="score",
    worked=lambda score: score is not None,
    refusal=lambda _request_id, _reason: None,
)

MEASURE: WorkKind[ScoreBatch, AnswerLogprob | None] = WorkKind(
    task="measure", worked=lambda logprob: logprob is not None, refusal=None
)
