"""The sampling protocol: what every engine takes and gives, whatever runs behind it.

Requests travel in batches that the caller can commit one by one; engines may work on several at
once and give each back as soon as it is whole. A request has its own seed, so a batch's neighbours,
its order and the engine's concurrency change nothing. This module imports no engine.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...configs.schema import EngineConfig
from ...stores.records import FinishReason, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw: temperature 0 is greedy; `max_tokens` bounds the completion.

    `token_ids` asks for the drawn tokens beside their text, as a trainer needs them: text that is
    tokenized again can be others. `logit_bias` adds to the logits of tokens, -100 to 100 each,
    before the temperature divides them; a token is named by its id, or by its text where the engine
    holds the tokenizer.
    """

    temperature: float
    top_p: float
    max_tokens: int
    token_ids: bool = False
    logit_bias: tuple[tuple[int | str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to draw: a conversation and the seed of its random numbers."""

    request_id: str
    messages: tuple[Message, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One drawn completion.

    `finish_reason` is `stop` (the model ended), `length` (max_tokens reached), `overlong` (the
    prompt does not fit the context: nothing was drawn) or `failed` (this request alone can not be
    answered, and `error` says why: others go on). `logprob` sums over the completion's tokens, in
    nats, under the unscaled model distribution; None where the engine can not say. `token_ids` are
    the drawn tokens, the one that ended the answer among them, where the sampling asked for them.
    """

    request_id: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    logprob: float | None
    error: str | None = None
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests that are wanted together, drawn in one way, under the caller's key.

    Keep it small, 64 requests or fewer: it comes back as a whole, so it is what a stall clock
    waits for, what a drain finishes and what a restarted worker draws again.
    """

    key: str
    requests: tuple[Request, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The completions of a batch, one a request, in the order of its requests."""

    key: str
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLogprob:
    """How probable an answer is to a model.

    `logprob` is the sum over the answer's tokens, its end token among them, in nats at
    temperature 1; `tokens` says how many there are.
    """

    logprob: float
    tokens: int


class EngineError(RuntimeError):
    """An engine that can not start or has died; the message says what to do."""


class Engine(Protocol):
    """Anything that draws completions."""

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole, in any order.

        Batches in flight together may differ in how they are drawn.
        """
        ...

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn, the assistant's, of each conversation.

        None where the engine can not say, or the conversation does not fit its context.
        """
        ...

    def configure(self, config: EngineConfig) -> None:
        """Take over the live settings of `config` from now on; the others are left alone."""
        ...

    def close(self) -> None:
        """Release the model; the engine can not be used afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One conversation, the answer as its last turn, to be scored by a reward model."""

    request_id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBatch:
    """Conversations scored together, under the caller's key."""

    key: str
    requests: tuple[ScoreRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """r(x, y) of each request in order; None where the model can not read the conversation.

    It is too long, or ends the worker that reads it every time.
    """

    key: str
    scores: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """What an engine says of a batch's answers, in order; None where it can not say."""

    key: str
    logprobs: tuple[AnswerLogprob | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """The vector of each request in order, as the bytes of 32-bit floats."""

    key: str
    vectors: tuple[bytes, ...]


class Embedder(Protocol):
    """Anything that gives texts vectors: near where the texts mean much the same."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector a text, in order, as the bytes of 32-bit floats."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...


class Scorer(Protocol):
    """Anything that gives conversations a scalar reward."""

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; give each back when whole, in any order."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...
