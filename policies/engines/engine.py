"""The sampling protocol: what every engine accepts and returns.

Requests travel in batches that the caller can commit one by one; engines may work on several at
once and return each as soon as it is whole. Each request has its own seed, so results do not depend
on a batch's neighbours, its order or the engine's concurrency. This module imports no engine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...configs.schema import EngineConfig
from ...stores.keys import Json
from ...stores.records import FinishReason, Message, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw: temperature 0 is greedy; `max_tokens` bounds the completion.

    `token_ids` asks for the drawn tokens beside their text, for trainers: tokenizing the text again
    can give other tokens. Without `logprob` an engine may leave it out of its completions, where it
    makes them longer. `logit_bias` is added to the logits of tokens, -100 to 100 each, before
    division by the temperature; a token is named by its id, or by its text if the engine holds the
    tokenizer. Then, in this order: `repetition_penalty` divides the positive logits of tokens that
    prompt or answer hold, and multiplies the others; after division by the temperature `min_p`
    leaves tokens of at least that share of the highest probability, `top_k` the most probable ones,
    `top_p` the nucleus of what is left. `stop` are texts that end a completion, which ends before.
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

    `example` makes a reply that the asker could read, of a seed and a reason to give, for an engine
    that stands in for a judge. It never leaves the process. `schema` is the JSON schema that an
    endpoint keeps the reply to; no other engine does.
    """

    request_id: str
    messages: tuple[Message, ...]
    seed: int
    example: Callable[[int, str], str] | None = field(default=None, compare=False, repr=False)
    schema: Mapping[str, Json] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What an endpoint says of itself with an answer, and what was odd about the answer.

    `model` and `system_fingerprint` are as it writes them, empty if it does not. `remarks` are
    sentences for the run's journal. `batched`: it came in a batch file, which has its own
    price.
    """

    model: str = ""
    system_fingerprint: str = ""
    remarks: tuple[str, ...] = ()
    batched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One drawn completion.

    `finish_reason` is `stop` (the model ended), `length` (max_tokens reached),
    `truncated_thinking` (reached inside the thought, so that there is no text), `overlong` (the
    prompt does not fit the context: nothing was drawn) or `failed` (this one request cannot be
    answered, and `error` says why). `text` is the answer; `reasoning` is what a thinking model
    wrote before it, without its tags. The counts, `token_ids` and `logprob` are of both. `logprob`
    sums over the completion's tokens, in nats, under the unscaled model distribution; None if the
    engine does not report it. `token_ids` are the drawn tokens, including the end token, if the
    sampling asked for them. `provenance` is what an endpoint tells besides; None for a model that
    runs here.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests that are wanted together, drawn in one way, under the caller's key.

    Keep it small, 64 requests or fewer: it comes back as a whole, so it is the unit that a stall
    clock waits for, a drain finishes and a restarted worker draws again.
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
    """The probability of an answer under a model.

    `logprob` is the sum over the answer's tokens, its end token among them, in nats at
    temperature 1; `tokens` says how many there are.
    """

    logprob: float
    tokens: int


class EngineError(RuntimeError):
    """An engine that cannot start or go on; the message says what to do."""


class UnloadableError(EngineError):
    """A model that cannot be loaded as configured, however often it is tried."""


@runtime_checkable
class Engine(Protocol):
    """Draws completions."""

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole, in any order.

        Batches in flight together may differ in how they are drawn.
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


class Measurer(Protocol):
    """What holds weights, and can be asked how probable answers are under them."""

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn, the assistant's, of each conversation; None if it cannot."""
        ...


@runtime_checkable
class Provable(Protocol):
    """An engine whose workers come and go, and prove their weights each by itself."""

    def prove(self, proof: Callable[[Measurer], None]) -> None:
        """Have every worker measured by `proof`, now and before a later one is given work.

        Raises:
            EngineError: as `proof` does, of the first that does not hold the weights.
        """
        ...


@runtime_checkable
class Sleeper(Protocol):
    """A loaded model that can leave its devices to another one, and come back.

    Nothing may be in flight when it falls asleep, nor be asked of it before it is awake.
    """

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything: not on a CPU, whose memory is the machine's."""
        ...

    def sleep(self) -> None:
        """Move the weights into the machine's memory and free the rest, but for the process.

        Raises:
            EngineError: if it cannot; close it then.
        """
        ...

    def wake(self) -> None:
        """Come back to the devices; do nothing where it is awake.

        Raises:
            EngineError: if it cannot; close it then.
        """
        ...


@runtime_checkable
class ReloadableEngine(Engine, Sleeper, Protocol):
    """An engine whose model can be given other weights while it lives."""

    def reload(self, folder: Path) -> None:
        """Load the weights of another folder with the same architecture and tokenizer, and wake.

        Raises:
            EngineError: if it cannot; close it then, as it may have some of them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One conversation, the answer as its last turn, to be scored by a reward model.

    `prompt` is what a reward function of the user's own is shown besides. `ended`: the answer ended
    by itself, and was not cut off.
    """

    request_id: str
    messages: tuple[Message, ...]
    prompt: Prompt | None = None
    ended: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBatch:
    """Conversations scored together, under the caller's key."""

    key: str
    requests: tuple[ScoreRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """r(x, y) of each request in order; None where the model cannot read the conversation.

    It is too long, or kills every worker that reads it.
    """

    key: str
    scores: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """The measurements of a batch's answers, in order; None where there is none."""

    key: str
    logprobs: tuple[AnswerLogprob | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """The vector of each request in order, as the bytes of 32-bit floats."""

    key: str
    vectors: tuple[bytes, ...]


class Embedder(Protocol):
    """Maps texts to vectors; similar meanings give vectors that are close."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector a text, in order, as the bytes of 32-bit floats."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...


class Scorer(Protocol):
    """Gives conversations a scalar reward."""

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is whole, in any order."""
        ...

    def close(self) -> None:
        """Release the model."""
        ...
