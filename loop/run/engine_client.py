"""The channels of requests: to an engine that completes them, or to one that scores them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from ...configs.schema import SamplingConfig
from ...configs.secrecy import redact
from ...policies.engines.engine import (
    Batch,
    Completion,
    Provenance,
    Request,
    Sampling,
    ScoreBatch,
    Scorer,
    ScoreRequest,
)
from ...policies.engines.token_count import most_tokens, schema_tokens
from ...stores.journal_reader import Cost
from .budget import CostEstimator
from .models import Served
from .reporter import UnitStats
from .run import Run

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient(ABC, Generic[R, A, B]):
    """Requests R to a model, its answers A, and the batches B in which they travel.

    By default they cost nothing, and answers are not kept. With `judge` they count as judge calls.
    """

    judge: bool = False

    @abstractmethod
    def batch(self, key: str, requests: Sequence[R], *, again: bool) -> B:
        """Return requests as the engine takes them; `again` if they are repetitions."""

    @abstractmethod
    def stream(self, batches: Iterable[B]) -> Iterator[tuple[str, Sequence[A]]]:
        """Yield the answers to each batch with its key, in the order of its requests."""

    @abstractmethod
    def name(self, request: R) -> str:
        """Return a name of the request that is unique within its unit."""

    def most(self, requests: Sequence[R]) -> Cost:
        """Return the maximal cost of requests, each sent once."""
        del requests
        return Cost()

    def expected_cost(self, requests: Sequence[R]) -> Cost:
        """Return the expected cost of requests, including expected repetitions."""
        del requests
        return Cost()

    def actual_cost(self, requests: Sequence[R], answers: Sequence[A], *, again: bool) -> UnitStats:
        """Return the actual cost of answers, and learn the expected cost from it."""
        del requests, answers, again
        return UnitStats()

    def note_failures(self, answers: Sequence[A]) -> None:
        """Record in the journal why requests failed."""

    def remarks(self, answers: Sequence[A]) -> set[str]:
        """Return warnings about the answers, as sentences."""
        del answers
        return set()

    def serialize(self, names: Sequence[str], answers: Sequence[A]) -> str | None:
        """Return answers as text to keep; None if they cost nothing."""
        del names, answers
        return None

    def read(self, text: str) -> Mapping[str, A]:
        """Return the answers in a kept text, by the names of their requests."""
        del text
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineClient(ModelClient[Request, Completion, Batch]):
    """Requests to a model's engine, sampled by `first`, and by `again` if repeated."""

    run: Run
    served: Served
    first: Sampling
    again: Sampling

    def batch(self, key: str, requests: Sequence[Request], *, again: bool) -> Batch:
        """Return requests as the engine takes them."""
        sampling = self.again if again else self.first
        # A judge's log probabilities are not stored.
        room = sampling.max_tokens + self._room
        sampling = replace(sampling, max_tokens=room, logprob=not self.judge)
        return Batch(key=key, requests=tuple(requests), sampling=sampling)

    def stream(self, batches: Iterable[Batch]) -> Iterator[tuple[str, Sequence[Completion]]]:
        """Yield the completions of each batch with its key."""
        for result in self.run.engine(self.served).generate(batches):
            yield result.key, result.answers

    def most(self, requests: Sequence[Request]) -> Cost:
        """Return the maximal cost of requests, each sent once."""
        self.run.prices.require([self.served])
        return self._cost(
            prompt_tokens=sum(most_tokens(r.messages) + schema_tokens(r.schema) for r in requests),
            tokens=len(requests) * (self.first.max_tokens + self._room),
            calls=len(requests),
        )

    def expected_cost(self, requests: Sequence[Request]) -> Cost:
        """Return the expected cost of requests, including expected repetitions."""
        longest = self.first.max_tokens + self._room
        prompt_tokens, tokens, calls = self._experience.expected_tokens(requests, longest)
        return self._cost(prompt_tokens=prompt_tokens, tokens=tokens, calls=calls)

    def actual_cost(
        self, requests: Sequence[Request], answers: Sequence[Completion], *, again: bool
    ) -> UnitStats:
        """Return the cost of completions, the number of failures, and the models that answered."""
        self._experience.learn(requests, answers, again=again)
        prompt_tokens = sum(c.prompt_tokens for c in answers)
        tokens = sum(c.completion_tokens for c in answers)
        pairs = zip(requests, answers, strict=True)
        batched = [c for c in answers if c.provenance is not None and c.provenance.batched]
        off = 1 - self.run.prices.batch
        return UnitStats(
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            letters=sum(len(c.text) for c in answers),
            prompt_letters=sum(letters(r) for r, c in pairs if c.prompt_tokens),
            calls=len(answers),
            retries=len(answers) if again else 0,
            failed=sum(c.finish_reason == "failed" for c in answers),
            money=self._money(answers) - off * self._money(batched),
            served=frozenset(
                (self.served.name, p.model, p.system_fingerprint) for p in _provenances(answers)
            ),
        )

    def note_failures(self, answers: Sequence[Completion]) -> None:
        """Record in the journal why requests failed; their rows say only that they failed."""
        store = self.run.store
        for completion in answers:
            if completion.error is not None:
                detail = {"request": completion.request_id, "reason": redact(completion.error)}
                store.when_there_is_room(partial(store.journal.record, "failed", detail))

    def remarks(self, answers: Sequence[Completion]) -> set[str]:
        """Return the warnings about answers, and the reason of one failed request, if any."""
        remarks = {remark for p in _provenances(answers) for remark in p.remarks}
        failed = next((answer.error for answer in answers if answer.error is not None), None)
        remarks |= {f"a request failed: {failed}"} if failed else set()
        return {f"{self.served.name}: {redact(remark)}" for remark in remarks}

    @property
    def _room(self) -> int:
        """The tokens beyond `max_tokens` that a reasoning model may use."""
        return self.served.engine.reasoning_tokens

    @property
    def _experience(self) -> CostEstimator:
        return self.run.budget.experience[self.served.name, self.first, self.judge]

    def _money(self, answers: Sequence[Completion]) -> float:
        """Return the sum of the answers' costs."""
        return self.run.prices.money(
            self.served,
            prompt_tokens=sum(c.prompt_tokens for c in answers),
            tokens=sum(c.completion_tokens for c in answers),
        )

    def _cost(self, *, prompt_tokens: int, tokens: int, calls: int) -> Cost:
        return Cost(
            tokens=prompt_tokens + tokens,
            judge_calls=calls if self.judge else 0,
            money=self.run.prices.money(self.served, prompt_tokens=prompt_tokens, tokens=tokens),
        )

    def name(self, request: Request) -> str:
        """Return the id and the seed: a repeated request has another seed."""
        return f"{request.request_id}/{request.seed}"

    def serialize(self, names: Sequence[str], answers: Sequence[Completion]) -> str:
        """Return completions as JSON."""
        shown = (replace(c, error=c.error and redact(c.error)) for c in answers)
        return json.dumps(dict(zip(names, map(asdict, shown), strict=True)))

    def read(self, text: str) -> Mapping[str, Completion]:
        """Return the completions in a text that `written` made."""
        kept: dict[str, dict[str, Any]] = json.loads(text)
        return {name: _completion(fields) for name, fields in kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerClient(ModelClient[ScoreRequest, float | None, ScoreBatch]):
    """Requests to a reward model; a row without a score holds the reason."""

    scorer: Scorer

    def batch(self, key: str, requests: Sequence[ScoreRequest], *, again: bool) -> ScoreBatch:
        """Return requests as the scorer takes them."""
        del again
        return ScoreBatch(key=key, requests=tuple(requests))

    def stream(self, batches: Iterable[ScoreBatch]) -> Iterator[tuple[str, Sequence[float | None]]]:
        """Yield the scores of each batch with its key."""
        for result in self.scorer.score(batches):
            yield result.key, result.answers

    def name(self, request: ScoreRequest) -> str:
        """Return the id of the scored answer."""
        return request.request_id


def letters(request: Request) -> int:
    """Return the number of letters in a request's messages."""
    return sum(len(message.content) for message in request.messages)


def engine_sampling(config: SamplingConfig, *, temperature: float | None = None) -> Sampling:
    """Return the engine's form of a sampling setting."""
    return Sampling(
        temperature=config.temperature if temperature is None else temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        top_k=config.top_k,
        min_p=config.min_p,
        repetition_penalty=config.repetition_penalty,
        stop=config.stop,
    )


def _provenances(answers: Sequence[Completion]) -> list[Provenance]:
    return [answer.provenance for answer in answers if answer.provenance is not None]


def _completion(fields: dict[str, Any]) -> Completion:
    tokens: list[int] | None = fields["token_ids"]
    provenance: dict[str, Any] | None = fields["provenance"]
    if provenance is not None:
        provenance["remarks"] = tuple(provenance["remarks"])
    return replace(
        Completion(**fields),
        token_ids=None if tokens is None else tuple(tokens),
        provenance=None if provenance is None else Provenance(**provenance),
    )
