"""Sampling from OpenAI-compatible endpoints: a pool of `vllm serve`, or a hosted judge.

Requests go round the endpoints in turn, at most `concurrency` at once, on an event loop in a thread
that the engine owns. The client library's own retries are off: one policy here waits out what is
temporary (429, 5xx, connections, time-outs), honours Retry-After, moves on to the next endpoint,
and ends.

The endpoint keeps the chat template and the tokenizer. Where it says that it is vLLM, the sampling
fields that the model's `generation_config.json` could set are sent too, so that they change nothing
unseen.
"""

import asyncio
import os
import queue
import random
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ..configs.schema import EngineConfig
from .chat import overlong
from .engine import Batch, BatchResult, Completion, EngineError, Request, Sampling
from .feed import arrived

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion
    from tenacity import RetryCallState

KEY_VARIABLE = "LPFLOOP_API_KEY"
NO_KEY = "none"
"""Sent where no key is configured: the client library would read another program's variable
instead.
"""

PROBE_S = 15.0
ATTEMPTS = 8
RETRY_BUDGET_S = 900.0
LONGEST_WAIT_S = 120.0
POLL_S = 0.02
AHEAD = 2

VLLM_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""What vLLM's server would otherwise take from the model's own generation_config.json."""

OVERFLOW_SIGNS = (
    "context length",
    "context_length",
    "maximum context",
    "max_model_len",
    "too long",
)


def addresses(model: str, config: EngineConfig) -> tuple[str, ...]:
    """Return the endpoints' base URLs; one without a path gets `/v1`.

    Raises:
        EngineError: when there is none, or one is no http(s) URL.
    """
    urls = config.base_urls or (model,)
    return tuple(_base_url(url) for url in urls)


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EngineError(
            f"{url!r} is no endpoint; give an address such as http://127.0.0.1:8000/v1"
        )
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") or "/v1"))


def api_key(config: EngineConfig) -> str | None:
    """Return the configured key, or the environment's."""
    if config.api_key is not None:
        return config.api_key.get_secret_value()
    return os.environ.get(KEY_VARIABLE)


@dataclass(frozen=True, slots=True)
class Served:
    """The model an endpoint serves, and whether the endpoint is vLLM's server."""

    name: str
    by_vllm: bool


def probe(base_url: str, key: str | None, model_name: str | None = None) -> str:
    """Ask an endpoint which model it serves; return the name to use.

    Raises: EngineError: naming the URL and the cause, when it does not answer, refuses the key,
    does not serve `model_name`, or serves several models and none is named.
    """
    return ask(base_url, key, model_name).name


def ask(base_url: str, key: str | None, model_name: str | None) -> Served:
    """Ask an endpoint which model it serves, and what kind of server it is (see `probe`)."""
    import openai

    transport = openai.DefaultHttpx2Client(follow_redirects=False)
    with openai.OpenAI(
        base_url=base_url,
        api_key=key or NO_KEY,
        max_retries=0,
        timeout=PROBE_S,
        http_client=transport,
    ) as client:
        try:
            models = list(client.models.list().data)
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise EngineError(_refusal(base_url, error)) from error
    names = [model.id for model in models]
    wanted = model_name or (names[0] if len(names) == 1 else None)
    if wanted is None:
        listed = ", ".join(names) or "none"
        raise EngineError(f"{base_url}: which model? it serves {listed}; set engine.model_name")
    if names and wanted not in names:
        raise EngineError(f"{base_url}: does not serve {wanted!r}, but {', '.join(names[:8])}")
    return Served(wanted, any(model.owned_by == "vllm" for model in models if model.id == wanted))


def _refusal(url: str, error: Exception) -> str:
    """Say in one sentence why an endpoint can not be used."""
    import openai

    if isinstance(error, openai.APITimeoutError | TimeoutError):
        why = "the endpoint did not answer in time"
    elif isinstance(error, openai.APIConnectionError):
        why = f"the endpoint can not be reached ({error.__cause__ or error})"
    elif isinstance(error, openai.APIStatusError):
        why = _status(error)
    else:
        why = "the answer is not that of an OpenAI-compatible endpoint"
    return f"{url}: {why}"


def _status(error: "openai.APIStatusError") -> str:
    status = error.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"the endpoint refuses the API key (HTTP {status}); set {KEY_VARIABLE}"
    if status == HTTPStatus.NOT_FOUND:
        return "nothing there (HTTP 404); the address usually ends in /v1"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return (
            f"the endpoint redirects (HTTP {status}), which is not followed; give its new address"
        )
    return f"the endpoint refuses (HTTP {status}): {_detail(error)}"


def _detail(error: "openai.APIStatusError") -> str:
    return " ".join(error.message.split())[:300]


def is_temporary(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    import openai

    if isinstance(error, openai.RateLimitError):
        return error.code != "insufficient_quota"
    if isinstance(error, openai.APIStatusError):
        return (
            error.status_code in (408, 409) or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        )
    return isinstance(error, openai.APIConnectionError | TimeoutError)


def pause(state: "RetryCallState") -> float:
    """Return the seconds to wait: as Retry-After asks, else exponential with jitter; bounded."""
    error = state.outcome.exception() if state.outcome else None
    response = getattr(error, "response", None)
    asked = response.headers.get("retry-after") if response is not None else None
    try:
        seconds = float(asked) if asked is not None else -1.0
    except ValueError:
        seconds = -1.0
    if seconds >= 0:
        return min(seconds, LONGEST_WAIT_S)
    return random.uniform(0.5, 1.0) * min(2.0 ** (state.attempt_number - 1), LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the endpoint is asked for beyond the common core."""

    logprobs: bool = True
    limit: str = "max_completion_tokens"

    def without(self, told: str) -> "Dialect | None":
        """Return a dialect without what an endpoint's refusal names; None if it names nothing."""
        if self.logprobs and "logprob" in told:
            return replace(self, logprobs=False)
        if self.limit in told and self.limit != "max_tokens":
            return replace(self, limit="max_tokens")
        return None


class OpenAIEngine:
    """OpenAI-compatible endpoints, used in turn."""

    name = "openai"

    def __init__(self, model: str, config: EngineConfig) -> None:
        self._urls = addresses(model, config)
        key = api_key(config)
        self._served = [ask(url, key, config.model_name) for url in self._urls]
        self._timeout_s = config.timeout_s
        self._window = AHEAD * config.concurrency
        self._dialect = Dialect()
        self._turns = count()
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(config.concurrency)
        self._clients = [_client(url, key, config) for url in self._urls]
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openai-engine", daemon=True
        )
        self._thread.start()

    def generate(self, batches: Iterable[Batch], sampling: Sampling) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole."""
        source = iter(batches)
        done: queue.SimpleQueue[Future[BatchResult]] = queue.SimpleQueue()
        tasks: dict[Future[BatchResult], int] = {}
        more = True
        try:
            while more or tasks:
                room = more and sum(tasks.values()) < self._window
                take = room and (not tasks or arrived(source))
                finished = _next(done, 0 if take else POLL_S if room else None) if tasks else None
                if finished is not None:
                    del tasks[finished]
                    yield finished.result()
                elif take:
                    batch = next(source, None)
                    more = batch is not None
                    if batch is not None:
                        task = asyncio.run_coroutine_threadsafe(
                            self._batch(batch, sampling), self._loop
                        )
                        tasks[task] = len(batch.requests)
                        task.add_done_callback(done.put)
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Close the connections and end the engine's thread."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._close_clients(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close_clients(self) -> None:
        for client in self._clients:
            await client.close()

    async def _batch(self, batch: Batch, sampling: Sampling) -> BatchResult:
        tasks = [asyncio.create_task(self._request(r, sampling)) for r in batch.requests]
        try:
            return BatchResult(key=batch.key, completions=tuple(await asyncio.gather(*tasks)))
        finally:
            for task in tasks:
                task.cancel()

    async def _request(self, request: Request, sampling: Sampling) -> Completion:
        """Draw one request, adapting to what the endpoint does not know."""
        import openai

        turn = next(self._turns)
        bounded = True
        async with self._slots:
            while True:
                dialect = self._dialect
                try:
                    reply = await self._retried(
                        turn, _body(request, sampling, dialect, bounded=bounded)
                    )
                    return _completion(self._urls[turn % len(self._urls)], request, reply)
                except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                    told = error.message.lower()
                    if any(sign in told for sign in OVERFLOW_SIGNS):
                        if not bounded:
                            return overlong(request, 0)
                        bounded = False
                    elif (simpler := dialect.without(told)) is not None:
                        self._dialect = simpler
                    else:
                        raise EngineError(
                            _refusal(self._urls[turn % len(self._urls)], error)
                        ) from error

    async def _retried(self, turn: int, body: dict[str, Any]) -> "ChatCompletion":
        """Post until it succeeds or the budget is spent; each attempt asks the next endpoint."""
        import openai
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, stop_after_delay

        policy = AsyncRetrying(
            retry=retry_if_exception(is_temporary),
            wait=pause,
            stop=stop_after_attempt(ATTEMPTS) | stop_after_delay(RETRY_BUDGET_S),
            reraise=True,
        )
        place = turn
        try:
            async for attempt in policy:
                with attempt:
                    place = (turn + attempt.retry_state.attempt_number - 1) % len(self._urls)
                    return await self._post(place, body)
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            raise
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            raise EngineError(_refusal(self._urls[place], error)) from error
        raise AssertionError("a retry policy ends with a result or an error")

    async def _post(self, place: int, body: dict[str, Any]) -> "ChatCompletion":
        served = self._served[place]
        extra = VLLM_NEUTRAL if served.by_vllm else None
        async with asyncio.timeout(self._timeout_s):
            create: Any = self._clients[place].chat.completions.create
            return await create(model=served.name, extra_body=extra, **body)


def _body(
    request: Request, sampling: Sampling, dialect: Dialect, *, bounded: bool
) -> dict[str, Any]:
    """Return the parameters of one chat completion; unbounded, the context alone ends it."""
    body: dict[str, Any] = {
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
    }
    if bounded:
        body[dialect.limit] = sampling.max_tokens
    if dialect.logprobs:
        body["logprobs"] = True
    return body


def _completion(url: str, request: Request, reply: "ChatCompletion") -> Completion:
    """Read an endpoint's answer; what a filter cut short counts as not whole."""
    choices = getattr(reply, "choices", None)
    if not choices:
        raise EngineError(f"{url}: the answer to a chat completion holds no choice")
    choice = choices[0]
    tokens = choice.logprobs.content if choice.logprobs else None
    usage = reply.usage
    return Completion(
        request_id=request.request_id,
        text=choice.message.content or "",
        prompt_tokens=usage.prompt_tokens if usage else 0,
        completion_tokens=usage.completion_tokens if usage else len(tokens or ()),
        finish_reason="stop" if choice.finish_reason == "stop" else "length",
        logprob=sum(token.logprob for token in tokens) if tokens else None,
    )


def _client(url: str, key: str | None, config: EngineConfig) -> "openai.AsyncOpenAI":
    import openai

    return openai.AsyncOpenAI(
        base_url=url,
        api_key=key or NO_KEY,
        max_retries=0,
        timeout=config.timeout_s,
        http_client=openai.DefaultAsyncHttpx2Client(follow_redirects=False),
    )


def _next(
    done: "queue.SimpleQueue[Future[BatchResult]]", timeout: float | None
) -> "Future[BatchResult] | None":
    """Return the next finished batch, or None when none came in time."""
    try:
        return done.get_nowait() if timeout == 0 else done.get(timeout=timeout)
    except queue.Empty:
        return None
