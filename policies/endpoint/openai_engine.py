"""Sampling from OpenAI-compatible endpoints: a pool of `vllm serve`, or a hosted judge.

Requests go to the endpoints in turn, at most `concurrency` at once, on an event loop in the
engine's own thread. The client library's retries are off: one policy (`retry`) waits out temporary
failures, and permanent ones stop the engine at once.
"""

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from ...configs.schema import EngineConfig
from ...configs.secrecy import without_keys
from ...stores.records import Message
from ..engines.chat import overlong
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from ..engines.feed import arrived
from ..engines.token_count import token_count
from .chat_completion import ChatRequest
from .dialect import Dialect, overflows
from .endpoint import ServedModel, addresses, api_client, api_key, ask
from .faults import ATTEMPT_ERRORS, RefusedError, fault_of
from .retry import Trial
from .traffic import Passage, Traffic
from .transport import new_client
from .vllm_fields import vllm_fields

POLL_S = 0.02
AHEAD = 2
CLOSE_S = 0.5
CLOSED = "the engine was closed"

REFUSED = 8
"""This many refusals before any answer mean that the endpoint is at fault, not a request."""


class OpenAIEngine:
    """OpenAI-compatible endpoints, used in turn."""

    name = "openai"

    def __init__(
        self, model: str, config: EngineConfig, *, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Set up the endpoints; none is contacted before the first request.

        `loop` is run by the engine's thread until `close`, and closed by the caller; its
        clock is the engine's.

        Raises:
            EngineError: when an address is not an http(s) URL.
        """
        self._urls = addresses(model, config)
        self._key = api_key(config)
        self._config = config
        self._served: dict[int, ServedModel] = {}
        self._dialect = Dialect()
        self._count = token_count(model)
        self._turns = count()
        self._refused = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._traffic = Traffic(self._urls, config.concurrency)
        self._http = new_client()
        self._clients = [api_client(url, self._key, self._http) for url in self._urls]
        self._owns_loop = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openai-engine", daemon=True
        )
        self._thread.start()

    def configure(self, config: EngineConfig) -> None:
        """Use new concurrency, time-out and patience from the next request on."""
        with self._closing:
            self._config = config
            if not self._closed:
                self._loop.call_soon_threadsafe(self._traffic.resize, config.concurrency)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return [None] * len(conversations)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole.

        A batch with a refused request is held back until the endpoint has answered anything, or
        nothing else is left to do: if all requests are refused, the endpoint is to blame.

        Raises:
            EngineError: when a batch's bias names a token by its text, which endpoints do not look
                up; the batch is not sent.
        """
        source = iter(batches)
        done: queue.SimpleQueue[Future[BatchResult]] = queue.SimpleQueue()
        tasks: dict[Future[BatchResult], int] = {}
        held: list[BatchResult] = []
        more = True
        try:
            while more or tasks:
                window = AHEAD * self._config.concurrency
                room = more and sum(tasks.values()) < window
                take = room and (not tasks or arrived(source))
                finished = _next(done, 0 if take else POLL_S if room else None) if tasks else None
                if finished is not None:
                    del tasks[finished]
                    result = _result(finished)
                    if any(drawn.finish_reason == "failed" for drawn in result.completions):
                        held.append(result)
                    else:
                        yield result
                elif take:
                    batch = next(source, None)
                    more = batch is not None
                    if batch is not None:
                        task = self._submit(batch)
                        tasks[task] = len(batch.requests)
                        task.add_done_callback(done.put)
                if self._traffic.answers or not (tasks or (more and arrived(source))):
                    yield from held
                    held.clear()
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Cancel all requests, close the connections, end the engine's thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._owns_loop:
            self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._http.aclose()

    def _submit(self, batch: Batch) -> Future[BatchResult]:
        self._refuse_texts(batch.sampling)
        with self._closing:
            if self._closed:
                raise EngineError(CLOSED)
            return asyncio.run_coroutine_threadsafe(self._batch(batch), self._loop)

    def _refuse_texts(self, sampling: Sampling) -> None:
        texts = [token for token, _ in sampling.logit_bias if isinstance(token, str)]
        if texts:
            raise EngineError(
                f"{', '.join(self._urls)}: logit_bias names a token by its text ({texts[0]!r}); "
                "endpoints accept only token ids: give ids, or choose annotators without biases"
            )

    async def _batch(self, batch: Batch) -> BatchResult:
        tasks = [asyncio.create_task(self._request(r, batch.sampling)) for r in batch.requests]
        for task in (asyncio.current_task(), *tasks):
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        try:
            return BatchResult(key=batch.key, completions=tuple(await asyncio.gather(*tasks)))
        finally:
            for task in tasks:
                task.cancel()

    async def _request(self, request: Request, sampling: Sampling) -> Completion:
        """Draw one request; if `max_tokens` overflows the context, ask again without that limit."""
        trial = Trial(self._traffic, next(self._turns), self._config.patience_s)
        question = ChatRequest(request, sampling, count=self._count)
        while True:
            try:
                return await trial.run(partial(self._attempt, question))
            except RefusedError as refusal:
                if not overflows(refusal.told):
                    return self._refuse(request, refusal)
                if not question.bounded:
                    self._traffic.answers += 1
                    return overlong(request, 0)
                question = replace(question, bounded=False)

    def _refuse(self, request: Request, refusal: RefusedError) -> Completion:
        """Return the `failed` completion of a request that only itself cannot be answered."""
        self._refused += 1
        if self._refused >= REFUSED and not self._traffic.answers:
            error = EngineError(
                f"{', '.join(self._urls)}: all of the first {REFUSED} requests were refused; "
                f"correct the endpoint's settings ({refusal})"
            )
            self._traffic.stop(error)
            raise error
        return Completion(
            request_id=request.request_id,
            text="",
            prompt_tokens=0,
            completion_tokens=0,
            finish_reason="failed",
            logprob=None,
            error=str(refusal),
        )

    async def _attempt(self, question: ChatRequest, passage: Passage) -> Completion:
        """Ask one endpoint, dropping fields that it does not know."""
        while True:
            dialect = self._dialect
            try:
                return await self._ask(question, dialect, passage)
            except RefusedError as refusal:
                asked = question.request.messages
                if dialect.without(refusal, asked) is None or overflows(refusal.told):
                    raise
                # Others in flight may have dropped something else, or the same, meanwhile.
                self._dialect = self._dialect.without(refusal, asked) or self._dialect

    async def _ask(self, question: ChatRequest, dialect: Dialect, passage: Passage) -> Completion:
        """Ask one endpoint once, within the deadline of an attempt.

        Raises:
            TemporaryError, RefusedError, EngineError: for every failure.
        """
        place = passage.gate.place
        client = self._clients[place]
        try:
            async with asyncio.timeout(self._config.timeout_s):
                if place not in self._served:
                    self._served[place] = await ask(client, self._config.model_name)
                    self._traffic.prove(passage)
                served = self._served[place]
                url, config = self._urls[place], self._config
                extra = {**vllm_fields(served, url, question.sampling, config), **config.besides}
                drawn = await question.ask(client, served, dialect, extra)
                # A server, or the model behind it, may repeat the key that it was sent.
                return replace(
                    drawn,
                    text=without_keys(drawn.text),
                    reasoning=without_keys(drawn.reasoning),
                )
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self._urls[place], error, self._key)
        if place not in self._served and isinstance(fault, RefusedError):
            fault = EngineError(f"{self._urls[place]}: cannot tell what it serves ({fault})")
        raise fault  # outside: a traceback from within would hold the server's text


def _result(finished: Future[BatchResult]) -> BatchResult:
    try:
        return finished.result()
    except CancelledError:
        raise EngineError(CLOSED) from None


def _next(
    done: "queue.SimpleQueue[Future[BatchResult]]", timeout: float | None
) -> "Future[BatchResult] | None":
    """Return the next finished batch, or None when none came in time."""
    try:
        return done.get_nowait() if timeout == 0 else done.get(timeout=timeout)
    except queue.Empty:
        return None
