"""What engines and scorers accept and return, and the errors that they raise.

Requests travel in batches that the caller can commit one by one; an engine may work on several at
once, and returns each as soon as it is complete. Each request has its own seed, so results do not
depend on the other requests, their order or the engine's concurrency. This module imports no
engine.
"""

import queue
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, runtime_checkable

from ...configs.schema import EngineConfig
from ...stores.keys import Json
from ...stores.records import FinishReason, Message, Prompt

Answer = TypeVar("Answer")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw completions; temperature 0 is greedy, `max_tokens` bounds the completion.

    `token_ids` requests the drawn tokens in addition to their text: trainers need them, because
    the text may be tokenized differently. Without `logprob` an engine may leave that number out.
    `logit_bias` is added to the logits of tokens, -100 to 100 each, before division by the
    temperature; a token is given by its id, or by its text if the engine has the tokenizer.

    The others apply in this order: `repetition_penalty` divides the positive logits of tokens that
    occur in prompt or answer, and multiplies the negative ones; after division by the temperature,
    `min_p` keeps tokens of at least that share of the highest probability, `top_k` the most
    probable ones, `top_p` the nucleus of the rest. A completion ends before the first of the texts
    in `stop`.
    """

    temperature: float
    top_p: float
    max_tokens: int
    token_ids: bool = False
    logprob: bool = True
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to draw: a conversation and the seed of its random numbers.

    `example` makes a reply that the caller can parse, from a seed and a reason to give; a scripted
    judge answers with it. It never leaves the process. `schema` is the JSON schema of the reply:
    vLLM draws no token outside it, an endpoint gets it as `response_format`, and the other engines
    ignore it.
    """

    request_id: str
    messages: tuple[Message, ...]
    seed: int
    example: Callable[[int, str], str] | None = field(default=None, compare=False, repr=False)
    schema: Mapping[str, Json] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """An endpoint's report about itself with an answer, and warnings about the answer.

    `model` and `system_fingerprint` are the endpoint's own words, or empty. `remarks` are sentences
    for the run's journal. `batched`: the answer came in a batch file, which has another price.
    """

    model: str = ""
    system_fingerprint: str = ""
    remarks: tuple[str, ...] = ()
    batched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One drawn completion.

    `finish_reason` is `stop` (the model ended), `length` (`max_tokens` reached),
    `truncated_thinking` (`max_tokens` reached within the thought, so the text is empty),
    `overlong` (the prompt does not fit the context: nothing was drawn) or `failed` (this request
    cannot be answered, for the reason in `error`).

    `text` is the answer; `reasoning` is the thought before it, without tags. The counts,
    `token_ids` and `logprob` cover both. `logprob` sums over the completion's tokens, in nats,
    under the model's distribution at temperature 1; None if the engine does not report it.
    `token_ids` are the drawn tokens with the end token, if the sampling requests them.
    `provenance` is set only by endpoints.
    """

    request_id: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    logprob: float | None
    error: str | None = None
    token_ids: tuple[int, ...] | None = None
    provenance: Provenance | None = None
    reasoning: str = ""


def overlong(request: Request, prompt_tokens: int) -> Completion:
    """Return the completion of a prompt that does not fit the context."""
    nothing = failed_completion(request.request_id, None)
    return replace(nothing, prompt_tokens=prompt_tokens, finish_reason="overlong")


def failed_completion(request_id: str, error: str | None) -> Completion:
    """Return the completion of a request that cannot be answered."""
    return Completion(
        request_id=request_id,
        text="",
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="failed",
        logprob=None,
        error=error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests with one sampling, under the caller's key.

    Keep it at 64 requests or fewer: the stall limit applies to a batch, a drain waits for whole
    batches, and a restarted worker draws whole batches again.
    """

    key: str
    requests: tuple[Request, ...]
    sampling: Sampling


@dataclass(frozen=True, kw_only=True)  # with slots, `BatchResult(...)` would raise TypeError
class Result(Generic[Answer]):
    """One answer for each request of a batch, in order."""

    key: str
    answers: tuple[Answer, ...]


BatchResult = Result[Completion]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLogprob:
    """The probability of an answer under a model.

    `logprob` sums over the answer's `tokens` tokens, its end token included, in nats at
    temperature 1.
    """

    logprob: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One conversation to score, with the answer as its last turn.

    `prompt` is passed to a user's reward function. `ended`: the answer ended with its end token,
    and was not truncated.
    """

    request_id: str
    messages: tuple[Message, ...]
    prompt: Prompt | None = None
    ended: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBatch:
    """Conversations to score, under the caller's key."""

    key: str
    requests: tuple[ScoreRequest, ...]


ScoreResult = Result[float | None]
"""r(x, y) of each request.

None if the conversation does not fit the model, or kills every worker that reads it.
"""


class EngineError(RuntimeError):
    """An engine that cannot start or go on; the message has a remedy."""

    code = "LPF-301"


class UnloadableError(EngineError):
    """A model that cannot be loaded as configured, even after retries."""

    code = "LPF-302"


PASSING = re.compile(
    r"memory|CUDA|NCCL|cuDNN|\bHIP\b|\bXPU\b|driver|engine core|time[ds]? ?out|connection"
    r"|\[Errno (?!2\]|13\]|20\]|21\])",
    re.IGNORECASE,
)
"""Words of errors that may pass: another process occupies the memory or the device, a disk or a
connection fails. Every errno may pass except the ones for a missing or forbidden file or folder."""
PYDANTIC_ADVICE = re.compile(r" \[type=.*|For further information .*")
LONGEST_REASON = 400
"""Characters of a library's error message that are repeated."""


def final_fault(model: str, error: Exception) -> UnloadableError | None:
    """Return the error for a model that will never load; None if another try may help.

    A setting that the model does not allow, a folder without weights and a damaged file are final.
    """
    if PASSING.search(str(error)):
        return None
    reason = PYDANTIC_ADVICE.sub("", " ".join(str(error).split()))
    reason = " ".join(reason.split())[:LONGEST_REASON]
    return UnloadableError(
        f"{model} cannot be loaded: {reason or type(error).__name__}; correct the setting or the "
        "folder, then run it again"
    )


Measure = Callable[[Sequence[tuple[Message, ...]]], list[AnswerLogprob | None]]
"""Measures the last turn, the assistant's, of each conversation."""


@runtime_checkable
class Engine(Protocol):
    """Draws completions."""

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is complete, in any order.

        Batches in flight together may differ in their sampling.
        """
        ...

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn, the assistant's, of each conversation.

        None if the engine cannot measure, or the conversation does not fit its context.
        """
        ...

    def configure(self, config: EngineConfig) -> None:
        """Use the live settings of `config` from now on; ignore the others."""
        ...

    def close(self) -> None:
        """Release the model; the engine cannot be used afterwards."""
        ...


class Scorer(Protocol):
    """Gives conversations a scalar reward."""

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is complete, in any order."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...


POLL_S = 0.02
"""Seconds between polls of a source without an item."""


class Source(Iterator[T]):
    """An iterator whose items arrive over time: an engine can take one without waiting for it.

    An engine that works on many requests at once must not wait while its caller prepares the next
    batch, which may need the answers to earlier ones. The items of any other iterator count as
    available.
    """

    @property
    def stopping(self) -> bool:
        """Whether no item follows, and retries are not worth waiting for."""
        return False

    def take(self) -> T | None:
        """Return the next item, or None if it has not arrived yet.

        Raises:
            StopIteration: if no item follows.
        """
        return next(self)


def take(items: Iterator[T], *, wait: bool) -> T | None:
    """Return the next item; without `wait`, None if the item has not arrived yet.

    Raises:
        StopIteration: if no item follows.
    """
    return items.take() if isinstance(items, Source) and not wait else next(items)


def is_stopping(items: Iterable[object]) -> bool:
    """Whether the source is stopping."""
    return isinstance(items, Source) and items.stopping


class Feed(Source[T]):
    """Items put by one thread and taken by another; iteration ends after `finish` or `cancel`.

    `cancelled`: the results are not needed.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._ended = False
        self.cancelled = False

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.put(item)

    def finish(self) -> None:
        """Mark the end: no item follows."""
        self._items.put(None)

    def cancel(self) -> None:
        """Drop the queued items, because the results are not needed."""
        self.cancelled = True
        self._items.put(None)

    def take(self) -> T | None:
        """Return the next item, or None if none has been put yet."""
        return next(self) if self._ended or not self._items.empty() else None

    def __next__(self) -> T:
        item = None if self._ended or self.cancelled else self._items.get()
        if item is None or self.cancelled:
            self._ended = True
            raise StopIteration
        return item
