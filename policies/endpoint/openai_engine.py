"""Sampling from OpenAI-compatible endpoints: `vllm serve`, or a hosted model.

Requests go through one queue (`queue.py`), on an event loop in the engine's own thread. Temporary
failures are retried; permanent ones stop the engine at once.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ...configs.schema import EngineConfig
from ...stores.records import Message
from ..engines.engine import (
    POLL_S,
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
    failed_completion,
    is_stopping,
    overlong,
    take,
)
from ..engines.token_count import token_count
from .chat_completion import ChatRequest, vllm_fields
from .endpoint import ServedModel, addresses, api_key, ask, same_model
from .faults import ATTEMPT_ERRORS, DeniedError, RefusedError, fault_of
from .queue import RequestQueue, Server
from .transport import Connections, allow_connections
from .unsupported_params import newly_unsupported, overflows

T = TypeVar("T")

END_S = 0.5
"""Seconds that cancelled requests get to end when the engine is closed, and that a stopping run
waits with no request in flight, because the event loop may be delivering an answer.
"""
CLOSED = "the engine was closed"

AHEAD = 2
"""The requests taken ahead from the caller, as a multiple of the slots, to keep all slots busy."""
UNANSWERED = 4
"""The most requests taken, as a multiple of the slots, including those waiting for a retry."""

REFUSED = 8
"""The refusals in a row after which a short question tests whether the endpoint answers."""
DENIED = 64
"""The refusals in a row after which a denied request (`DeniedError`) ends the run: the account may
have credit for a short question only, and thousands of rows would be left unscored.
"""

CHECK = (Message(role="user", content="Reply with the word yes."),)
"""The short question that tests whether an endpoint answers."""


class Stream:
    """The batches of one call of `generate`, shared by its caller's thread and the event loop.

    `more`: the source may have others.
    """

    def __init__(self, requests: RequestQueue) -> None:
        self.batches = set[Future[BatchResult]]()
        self.more = True
        self.events: queue.SimpleQueue[Future[BatchResult] | None] = queue.SimpleQueue()
        self._requests = requests
        self._added = self._answered = 0
        self._wants_room = False

    def add(self, batch: Future[BatchResult], size: int) -> None:
        """Add a batch of `size` requests."""
        self._added += size
        self.batches.add(batch)
        batch.add_done_callback(self.events.put)

    def has_room(self) -> bool:
        """Whether another batch should be added; if not, `next` returns once it should."""
        self._wants_room = self.more
        return self.more and self._is_short

    def next(self) -> Future[BatchResult] | None:
        """Return a finished batch; None after a short wait without one, or if there is room now."""
        if not self.batches:
            return None
        try:
            batch = self.events.get(timeout=POLL_S)
        except queue.Empty:
            return None
        if batch is not None:
            self.batches.discard(batch)
        return batch

    def note_answer(self, _: object) -> None:
        """Count an answered request."""
        self._answered += 1
        if self._wants_room and self._is_short:
            self._wants_room = False
            self.events.put(None)

    @property
    def _is_short(self) -> bool:
        unanswered, slots = self._added - self._answered, self._requests.slots
        active = unanswered - self._requests.resting
        return active < AHEAD * slots and unanswered < UNANSWERED * slots


class OpenAIEngine:
    """The OpenAI-compatible endpoints of one model.

    `unsupported` are the parameters that the endpoints have rejected, `connections` those to each
    endpoint by its URL; they are used on the engine's event loop.
    """

    def __init__(
        self, model: str, config: EngineConfig, *, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Set up the endpoints; none is contacted before the first request.

        `loop` is run by the engine's thread until `close`, and closed by the caller; its clock is
        the engine's.

        Raises:
            EngineError: when an address is not an http(s) URL.
        """
        urls = addresses(model, config)
        self.key = api_key(config)
        self._config = config
        self.unsupported: frozenset[str] = frozenset()
        self._count = token_count(model)
        self._refused = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests = RequestQueue(
            urls, config, self.key, attempt=self._attempt, check=self._ask_shortly
        )
        self.connections = {url: Connections(url, self.key) for url in urls}
        self._served: dict[str, ServedModel] = {}
        allow_connections(self._requests.slots)
        self._owns_loop = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openai-engine", daemon=True
        )
        self._thread.start()

    def configure(self, config: EngineConfig) -> None:
        """Use new concurrency, limits and time-outs from the next request on."""
        with self._closing:
            self._config = config
            if not self._closed:
                allow_connections(config.concurrency * len(self.connections))
                self._loop.call_soon_threadsafe(self._requests.configure, config)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return [None] * len(conversations)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole.

        A batch with a refused request waits until an endpoint has answered a request, or all other
        work is done: if all requests are refused, the endpoint is to blame. When the source
        stops, the engine waits for requests in flight, but not for retries: their batches end
        without a result.

        Raises:
            EngineError: when an endpoint refuses every request, or none answers for too long.
        """
        source = iter(batches)
        stream = Stream(self._requests)
        held: list[BatchResult] = []
        busy_at = time.monotonic()
        try:
            while stream.more or stream.batches:
                # The source may be waiting for a batch that is held back.
                wait = not (stream.batches or held)
                if stream.has_room() and self._add_next(source, stream, wait=wait):
                    busy_at = time.monotonic()
                    continue
                finished = stream.next()
                if finished is not None or self._requests.under_way:
                    busy_at = time.monotonic()
                elif is_stopping(source) and time.monotonic() - busy_at > END_S:
                    return
                if finished is not None:
                    result = _result(finished)
                    if any(drawn.finish_reason == "failed" for drawn in result.answers):
                        held.append(result)
                    else:
                        yield result
                if self._requests.has_answered or (finished is None and not stream.batches):
                    yield from held
                    held.clear()
            yield from held
        finally:
            for batch in stream.batches:
                batch.cancel()

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
            await asyncio.wait([*self._tasks], timeout=END_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(one.aclose() for one in self.connections.values()))

    def _add_next(self, source: Iterator[Batch], stream: Stream, *, wait: bool) -> bool:
        """Send the next batch of the source; return False if none has arrived, or none follows."""
        try:
            batch = take(source, wait=wait)
        except StopIteration:
            stream.more = False
            return False
        if batch is not None:
            stream.add(self._submit(batch, stream), len(batch.requests))
        return batch is not None

    def _submit(self, batch: Batch, stream: Stream) -> Future[BatchResult]:
        self.refuse_texts(batch.sampling)
        return self._start(self._batch(batch, stream))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that uses the connections.

        Raises:
            EngineError: if the engine is closed meanwhile.
        """
        try:
            return self._start(self._as_task(work)).result()
        except CancelledError:
            raise EngineError(CLOSED) from None

    async def _as_task(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await task

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._closing:
            if self._closed:
                work.close()
                raise EngineError(CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def refuse_texts(self, sampling: Sampling) -> None:
        """Refuse a bias that names a token by its text.

        Raises:
            EngineError: naming it.
        """
        texts = [token for token, _ in sampling.logit_bias if isinstance(token, str)]
        if texts:
            raise EngineError(
                f"{', '.join(self.connections)}: logit_bias names a token by its text "
                f"({texts[0]!r}); endpoints accept only token ids: give ids, or choose annotators "
                "without biases"
            )

    async def _batch(self, batch: Batch, stream: Stream) -> BatchResult:
        tasks = [
            asyncio.create_task(self._answer(request, batch.sampling)) for request in batch.requests
        ]
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(stream.note_answer)
        try:
            return BatchResult(key=batch.key, answers=tuple(await asyncio.gather(*tasks)))
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, request: Request, sampling: Sampling) -> Completion:
        """Return a request's completion; a `failed` one if only this request cannot be answered."""
        try:
            return await self._requests.ask(ChatRequest(request, sampling, self._count))
        except RefusedError as refusal:
            return failed_completion(request.request_id, str(refusal))

    async def _attempt(self, chat: ChatRequest, server: Server) -> Completion:
        """Send a request to one endpoint; after a refusal, test whether it refuses all of them."""
        try:
            drawn = await self._ask(chat, server)
        except DeniedError as error:
            denied, refusal = error, RefusedError(error.reason, text="")
        except RefusedError as error:
            denied, refusal = None, error
        else:
            self._refused = 0
            return drawn
        self._refused += 1
        in_a_row = self._refused
        if denied is not None or in_a_row % REFUSED == 0:
            await self._require_other_answers(chat, server, denied or refusal)
        if denied is not None and in_a_row >= DENIED:
            raise EngineError(
                f"{server.url}: {in_a_row} requests in a row were refused, the last one with "
                f"{refusal}; if the key and the account are in order, resume: the rows that were "
                "refused stay unscored"
            )
        raise refusal

    async def _require_other_answers(
        self, chat: ChatRequest, server: Server, refusal: DeniedError | RefusedError
    ) -> None:
        """Send the short question after a refusal."""
        try:
            await self._short_answer(chat, server)
        except RefusedError:
            if isinstance(refusal, RefusedError):
                raise EngineError(
                    f"{server.url}: {self._refused} requests in a row were refused, and a "
                    f"short question, too; correct the endpoint's settings ({refusal})"
                ) from None
        except EngineError as error:
            raise (refusal if isinstance(refusal, DeniedError) else error) from None
        self._requests.has_answered = True

    async def _ask_shortly(self, chat: ChatRequest, server: Server) -> None:
        """Send the short question; even a refusal of its content shows that the endpoint works."""
        with suppress(RefusedError):
            await self._short_answer(chat, server)

    async def _short_answer(self, chat: ChatRequest, server: Server) -> None:
        check = replace(chat.request, request_id="check", messages=CHECK, schema=None)
        await self._ask(replace(chat, request=check), server)

    async def _ask(self, chat: ChatRequest, server: Server) -> Completion:
        """Send a request to one endpoint, without the parameters that it does not support."""
        while True:
            unsupported = self.unsupported
            try:
                return await self._post(chat, unsupported, server)
            except RefusedError as refusal:
                if overflows(refusal.text):
                    if not chat.bounded:
                        return overlong(chat.request, 0)
                    # Then only the context limits the answer.
                    chat.bounded = False
                    continue
                messages, by_schema = chat.request.messages, chat.request.schema is not None
                name = newly_unsupported(refusal, unsupported, messages, by_schema=by_schema)
                if name is None:
                    raise
                self.unsupported |= {name}

    async def _post(
        self, chat: ChatRequest, unsupported: frozenset[str], server: Server
    ) -> Completion:
        """Send a request to one endpoint once, within the deadline of an attempt."""
        connections, url = self.connections[server.url], server.url
        try:
            async with asyncio.timeout(self._config.timeout_s):
                served, config = await self._model_at(server), self._config
                extra = {**vllm_fields(served, url, chat.sampling, config), **config.extra_fields}
                body = chat.body(served, unsupported, extra)
                reply = await connections.post("chat/completions", body)
                return chat.completion(reply, unsupported, self.key)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(url, error, self.key)
        raise fault  # outside: a traceback from within would hold the server's text

    async def _model_at(self, server: Server) -> ServedModel:
        """Return the model that an endpoint serves; requested at first, and after it was closed."""
        served = self._served.get(server.url)
        if served is None or not server.proven:
            served = await ask(self.connections[server.url], self._config.model_name)
            known = next(iter(self._served.values()), served)
            self._served[server.url] = same_model(known, server.url, served)
            self._requests.prove(server)
        return served


def _result(finished: Future[BatchResult]) -> BatchResult:
    try:
        return finished.result()
    except CancelledError:
        raise EngineError(CLOSED) from None
