"""Sampling from OpenAI-compatible endpoints: a pool of `vllm serve`, or a hosted judge.

Requests wait in one queue for the endpoint that will answer them soonest (`traffic`), at most
`concurrency` are under way at each, on an event loop in the engine's own thread. One policy
(`retry`) waits out temporary failures, and permanent ones stop the engine at once. Several
endpoints must list the same model.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...configs.schema import EngineConfig
from ...configs.secrecy import without_keys
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
    overlong,
)
from ..engines.feed import arrived, is_stopping
from ..engines.token_count import token_count
from .chat_completion import ChatRequest
from .dialect import UNKEPT_SCHEMA, Dialect, overflows
from .endpoint import ServedModel, addresses, api_key, ask, same_model
from .faults import ATTEMPT_ERRORS, DeniedError, RefusedError, fault_of
from .gate import Gate, Passage
from .pace import pace_of
from .retry import Errand
from .stream import POLL_S, Stream
from .traffic import Traffic
from .transport import Connections, allow_connections
from .vllm_fields import vllm_fields

CLOSE_S = 0.5
CLOSED = "the engine was closed"
LOOK_S = 0.2
"""How often it is seen whether the run stops."""
REST_S = 0.5
"""So long after the last request was under way, no result is still to be given back."""

REFUSED = 8
"""After each so many refusals in a row it is checked that the endpoint answers another question."""
DENIED = 64
"""A denied request (`DeniedError`) after so many refusals in a row ends the run: the account may
have credit for a short question only, and thousands of rows would be left unscored.
"""

CHECK = (Message(role="user", content="Reply with the word yes."),)
"""The short question that shows whether an endpoint answers anything."""


@dataclass(slots=True)
class Wording:
    """What is asked, as it was last put: without a limit if that overflows the context."""

    asked: ChatRequest


class OpenAIEngine:
    """OpenAI-compatible endpoints, each used as far as it answers."""

    name = "openai"

    def __init__(
        self,
        model: str,
        config: EngineConfig,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Set up the endpoints; none is contacted before the first request.

        `loop` is run by the engine's thread until `close`, and closed by the caller; its clock is
        the engine's.

        Raises:
            EngineError: when an address is not an http(s) URL.
        """
        self._key = api_key(config)
        self._config = config
        self._dialect = Dialect()
        self._count = token_count(model)
        self._refused = 0
        self._answers_before = 0
        self._answers_others = False
        self._tasks: set[asyncio.Task[Any]] = set()
        urls = addresses(model, config)
        paces = [pace_of(url, self._key, config.model_name) for url in urls]
        self._traffic = Traffic(urls, config.concurrency, paces)
        self._connections = {gate: Connections(gate.url, self._key) for gate in self._traffic.gates}
        self._served: dict[Gate, ServedModel] = {}
        self._limit()
        self._owns_loop = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openai-engine", daemon=True
        )
        self._thread.start()

    def configure(self, config: EngineConfig) -> None:
        """Use new concurrency, limits, time-out and patience from the next request on."""
        with self._closing:
            self._config = config
        self._soon(self._reconfigure)

    def _limit(self) -> None:
        """Take the limits of the configuration."""
        config = self._config
        allow_connections(config.concurrency * len(self._connections))
        self._traffic.paced.limit(config.requests_per_minute, config.tokens_per_minute)

    def _reconfigure(self) -> None:
        self._limit()
        self._traffic.resize(self._config.concurrency)

    @property
    def dialect(self) -> Dialect:
        """What the endpoints have been found to take."""
        return self._dialect

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return [None] * len(conversations)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole.

        A batch with a refused request is held back until the endpoint has answered anything, or
        nothing else is left to do: if all requests are refused, the endpoint is to blame. When the
        source is asked to stop, batches end without a result once none of their requests is under
        way: they only wait for another attempt.

        Raises:
            EngineError: when a batch's bias names a token by its text, which endpoints do not look
                up; the batch is not sent.
        """
        source = iter(batches)
        stream = Stream(self._traffic)
        held: list[BatchResult] = []
        more, busy_at = True, time.monotonic()
        try:
            while more or stream.batches:
                room = more and stream.has_room()
                take = room and (not stream.batches or arrived(source))
                finished = stream.next(0 if take else POLL_S if room else LOOK_S)
                if finished is not None or take or self._traffic.tasks:
                    busy_at = time.monotonic()
                elif is_stopping(source) and time.monotonic() - busy_at > REST_S:
                    return
                if finished is not None:
                    result = _result(finished)
                    if any(drawn.finish_reason == "failed" for drawn in result.completions):
                        held.append(result)
                    else:
                        yield result
                    # What the caller has not kept yet counts as at hand.
                    self._soon(partial(stream.free, len(result.completions)))
                elif take:
                    batch = next(source, None)
                    more = batch is not None
                    if batch is not None:
                        stream.add(self._submit(batch, stream), len(batch.requests))
                answers = self._traffic.answers or self._answers_others
                if answers or not (stream.batches or (more and arrived(source))):
                    yield from held
                    held.clear()
        finally:
            stream.cancel()

    def close(self) -> None:
        """Cancel all requests, close the connections, end the engine's thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._traffic.paced.leave()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._owns_loop:
            self._loop.close()

    async def _end(self) -> None:
        tasks = {*self._tasks, *self._traffic.tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(one.aclose() for one in self._connections.values()))

    def _soon(self, call: Callable[[], None]) -> None:
        """Have the engine's thread call something, unless the engine is closed."""
        with self._closing:
            if not self._closed:
                self._loop.call_soon_threadsafe(call)

    def _submit(self, batch: Batch, stream: Stream) -> Future[BatchResult]:
        self.refuse_texts(batch.sampling)
        with self._closing:
            if self._closed:
                raise EngineError(CLOSED)
            return asyncio.run_coroutine_threadsafe(self._batch(batch, stream), self._loop)

    def refuse_texts(self, sampling: Sampling) -> None:
        """Refuse a bias that names a token by its text.

        Raises:
            EngineError: naming it.
        """
        texts = [token for token, _ in sampling.logit_bias if isinstance(token, str)]
        if texts:
            urls = ", ".join(gate.url for gate in self._traffic.gates)
            raise EngineError(
                f"{urls}: logit_bias names a token by its text ({texts[0]!r}); "
                "endpoints accept only token ids: give ids, or choose annotators without biases"
            )

    async def _batch(self, batch: Batch, stream: Stream) -> BatchResult:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        drawn: list[asyncio.Future[Completion]] = []
        try:
            async for request in stream.admit(batch.requests):
                drawn += [self._ask(request, batch.sampling, stream)]
            return BatchResult(key=batch.key, completions=tuple(await asyncio.gather(*drawn)))
        finally:
            for waiting in drawn:
                if not waiting.cancel() and not waiting.cancelled():
                    waiting.exception()  # retrieved, should the others never have been asked

    def _ask(
        self, request: Request, sampling: Sampling, stream: Stream
    ) -> asyncio.Future[Completion]:
        question = Wording(ChatRequest(request, sampling, count=self._count))
        limited = self._config.tokens_per_minute is not None
        errand = Errand(
            partial(self._attempt, question),
            partial(self._refuse, request),
            partial(self._check, question),
            stream.begin,
            tokens=question.asked.tokens if limited else 0,
            used=_used,
        )
        drawn = self._traffic.ask(errand, self._config.patience_s)
        drawn.add_done_callback(stream.settle)
        return drawn

    def _refuse(self, request: Request, refusal: RefusedError) -> Completion:
        """Return the `failed` completion of a request that only itself cannot be answered."""
        return Completion(
            request_id=request.request_id,
            text="",
            prompt_tokens=0,
            completion_tokens=0,
            finish_reason="failed",
            logprob=None,
            error=str(refusal),
        )

    async def _attempt(self, question: Wording, passage: Passage) -> Completion:
        """Ask one endpoint; if it refuses, find out whether it refuses every request.

        Raises:
            TemporaryError, RefusedError, EngineError: for every failure.
        """
        try:
            return await self._asked(question, passage)
        except DeniedError as error:
            denied, refusal = error, RefusedError(error.reason, told="")
        except RefusedError as error:
            denied, refusal = None, error
        in_a_row = self._count_refusal()
        if denied is not None or in_a_row % REFUSED == 0:
            await self._require_other_answers(question, passage, denied or refusal)
        if denied is not None and in_a_row >= DENIED:
            raise EngineError(
                f"{passage.gate.url}: {in_a_row} requests in a row were refused, the last one with "
                f"{refusal}; if the key and the account are in order, resume: the rows that were "
                "refused stay unscored"
            )
        raise refusal

    def _count_refusal(self) -> int:
        """Count a refusal; return how many there were since the last answer."""
        if self._answers_before != self._traffic.answers:
            self._refused, self._answers_before = 0, self._traffic.answers
        self._refused += 1
        return self._refused

    async def _require_other_answers(
        self, question: Wording, passage: Passage, refusal: DeniedError | RefusedError
    ) -> None:
        """Ask the short question after a refusal.

        Raises:
            TemporaryError: if it is not answered for now.
            EngineError: if it is refused, too.
        """
        try:
            await self._ask_shortly(question, passage)
        except RefusedError:
            if isinstance(refusal, RefusedError):
                raise EngineError(
                    f"{passage.gate.url}: {self._refused} requests in a row were refused, and a "
                    f"short question, too; correct the endpoint's settings ({refusal})"
                ) from None
        except EngineError as error:
            raise (refusal if isinstance(refusal, DeniedError) else error) from None

    async def _check(self, question: Wording, passage: Passage) -> None:
        """Show that the endpoint answers another request; a refusal counts as an answer."""
        with suppress(RefusedError):
            await self._ask_shortly(question, passage)

    async def _ask_shortly(self, question: Wording, passage: Passage) -> None:
        """Ask the short question, sampled as another one."""
        asked = replace(question.asked.request, request_id="check", messages=CHECK, schema=None)
        passage.gate.pace.count(self._loop.time())
        await self._asked(Wording(replace(question.asked, request=asked)), passage)
        self._answers_others = True

    async def _asked(self, question: Wording, passage: Passage) -> Completion:
        """Ask one endpoint, dropping what of the request it does not take."""
        while True:
            dialect, asked = self._dialect, question.asked
            try:
                return await self._posted(asked, dialect, passage)
            except RefusedError as refusal:
                if overflows(refusal.told):
                    if not asked.bounded:
                        return overlong(asked.request, 0)
                    # Only the context limits it then.
                    question.asked = replace(asked, bounded=False)
                    passage.gate.pace.count(self._loop.time())
                    continue
                refused = partial(
                    Dialect.without,
                    refusal=refusal,
                    messages=asked.request.messages,
                    by_schema=asked.request.schema is not None,
                )
                without = refused(dialect)
                if without is None:
                    raise
                if self._config.json_schema == "on" and not without.schemas:
                    url = passage.gate.url
                    raise EngineError(UNKEPT_SCHEMA.format(url, refusal)) from None
                # Others in flight may have dropped something else, or the same, meanwhile.
                self._dialect = refused(self._dialect) or self._dialect
                passage.gate.pace.count(self._loop.time())

    async def _posted(self, asked: ChatRequest, dialect: Dialect, passage: Passage) -> Completion:
        """Ask one endpoint once, within the deadline of an attempt.

        Raises:
            TemporaryError, RefusedError, EngineError: for every failure.
        """
        connections, url = self._connections[passage.gate], passage.gate.url
        try:
            async with asyncio.timeout(self._config.timeout_s):
                served, config = await self._model_at(passage), self._config
                extra = {**vllm_fields(served, url, asked.sampling, config), **config.besides}
                return keyless(await asked.ask(connections, served, dialect, extra))
        except ATTEMPT_ERRORS as error:
            fault = fault_of(url, error, self._key)
        raise fault  # outside: a traceback from within would hold the server's text

    async def _model_at(self, passage: Passage) -> ServedModel:
        """Return the model that an endpoint serves, asked once.

        Raises:
            EngineError: if the others serve another one.
        """
        gate = passage.gate
        served = self._served.get(gate)
        if served is None:
            served = await ask(self._connections[gate], self._config.model_name)
            known = next(iter(self._served.values()), served)
            self._served[gate] = same_model(known, gate.url, served)
            self._traffic.prove(passage)
        return served


def keyless(drawn: Completion) -> Completion:
    """Return it without the key, which a server, or the model behind it, may repeat."""
    return replace(drawn, text=without_keys(drawn.text), reasoning=without_keys(drawn.reasoning))


def _used(drawn: Completion) -> int:
    """Return how many tokens a completion took."""
    return drawn.prompt_tokens + drawn.completion_tokens


def _result(finished: Future[BatchResult]) -> BatchResult:
    try:
        return finished.result()
    except CancelledError:
        raise EngineError(CLOSED) from None
