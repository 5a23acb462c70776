"""Sampling by batch files: requests are gathered and sent as one file, answered within a day.

The first request is sent directly, to learn which parameters the endpoint supports before
thousands of requests are written. Requests are also sent directly if they are too few for a file,
if the endpoint refuses them in a file, or if three files did not answer them.

A record of each file is on disk before its batch begins. A later process with the same requests,
after a stop or a crash, finds the record and waits for the same batch, so no request is paid twice.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import openai

from ...configs.schema import EngineConfig
from ...stores.durable import discard, make_folder, write_file
from ...stores.keys import Json, digest
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
    is_stopping,
    take,
)
from ..engines.token_count import token_count
from .chat_completion import ChatRequest, vllm_fields
from .endpoint import ServedModel, addresses, api_key, ask
from .faults import ATTEMPT_ERRORS, DeniedError, RefusedError, TemporaryError, fault_of, shorten
from .openai_engine import CLOSED, OpenAIEngine
from .transport import NO_KEY, SENT, AnswerTooLargeError, StatusError, is_reasonable

T = TypeVar("T")

FILE_BYTES = 200_000_000
"""The largest file of requests that endpoints accept."""
OUTPUT_BYTES = 2**30
"""The largest file of answers that is read."""
PAGE = 100
"""The number of batches per listing."""
TRIES = 3
"""The number of files without an answer after which a request is sent directly."""

ANSWERS_AT = "/v1/chat/completions"
"""The URL of each line, without any prefix of the endpoint's address."""
OF_THE_BODY = ("content-length", "content-type", "host", "x-stainless-raw-response")
"""The headers that the `openai` client may set; it needs the last one to parse the reply. Its
other headers describe this machine, and some come from environment variables that are meant for
another host.
"""
NONE_HERE = frozenset({404, 405, 501})
ENDED = ("completed", "expired", "cancelled", "failed")
MISSING_LINE = TemporaryError("the batch ended without an answer to it", kind="busy")

logger = logging.getLogger("lpfloop.batches")


class GoneError(Exception):
    """The endpoint does not have the requested object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A file of requests at an endpoint: the names of its lines, and the batch that answers it."""

    url: str
    file: str
    requests: tuple[str, ...]
    batch: str | None = None

    def path(self, folder: Path) -> Path:
        """Return where the record is kept."""
        return folder / f"{digest([self.url, self.file])[:32]}.json"


@dataclass(slots=True, eq=False)
class _OpenBatch:
    """A batch of the caller, which is returned when it is whole."""

    key: str
    drawn: list[Completion | None]


@dataclass(slots=True, eq=False)
class _Line:
    """A request by its name in files; `tries` counts these files."""

    name: str
    chat: ChatRequest
    of: _OpenBatch
    place: int
    tries: int = 0


@dataclass(slots=True, eq=False)
class _SentFile:
    """A file that was sent, its unanswered lines, and when all were answered."""

    record: BatchRecord
    lines: dict[str, _Line] = field(default_factory=dict[str, _Line])
    answered_at: float = 0.0


class BatchFileEngine:
    """One OpenAI-compatible endpoint that takes batch files."""

    name = "openai"

    def __init__(self, model: str, config: EngineConfig, *, folder: Path) -> None:
        """Set up the endpoint; it is not contacted before the first request.

        `folder` keeps the records of files that were sent.

        Raises:
            EngineError: when the address is not an http(s) URL.
        """
        [self.url] = addresses(model, config)
        self.key = api_key(config)
        self.config = config
        self.folder = folder
        self.direct = OpenAIEngine(model, config)
        self.count = token_count(model)
        self.closed = threading.Event()
        self.answered: list[_SentFile] = []
        self.forgetting = threading.Lock()
        self.learning = threading.Lock()
        self.has_learned = False

    def configure(self, config: EngineConfig) -> None:
        """Use new sizes of files, pauses and limits from the next file on."""
        self.config = config
        self.direct.configure(config)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return self.direct.logprobs(conversations)

    def close(self) -> None:
        """End all waiting; batches continue at the endpoint."""
        self.closed.set()
        self.direct.close()

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole.

        A file is sent when it is full, or if no request was added between two polls of the
        endpoint. When the source stops, sent files are left to the endpoint.

        Raises:
            EngineError: when the endpoint does not support batch files, or a batch fails as a
                whole.
        """
        api = _BatchApi(self)
        try:
            api.call(api.require_batches)
            served = api.call(self._served_model)
            session = _Session(self, api, served)
            try:
                yield from session.draw(iter(batches))
            finally:
                session.log_unanswered()
        finally:
            api.close()

    def _served_model(self) -> ServedModel:
        connections = self.direct.connections[self.url]
        return self.direct.run(ask(connections, self.config.model_name))


class _BatchApi:
    """The calls about batch files, each retried."""

    def __init__(self, engine: BatchFileEngine) -> None:
        self._engine = engine
        self._client = _client(engine.url, engine.key)

    def call(self, ask: Callable[[], T]) -> T:
        """Return the result of a call.

        Raises:
            GoneError: if the requested object does not exist.
            EngineError: if it is refused, fails for `retry_timeout_s`, or the engine is closed.
        """
        url, since = self._engine.url, time.monotonic()
        while True:
            try:
                return self._attempt(ask)
            except RefusedError as refusal:
                message = f"{url}: the endpoint refuses a batch file ({refusal})"
                raise EngineError(message) from None
            except TemporaryError as fault:
                config = self._engine.config
                pause_s = max(fault.pause_s or 0.0, config.batch_poll_s)
                if time.monotonic() - since + pause_s > config.retry_timeout_s:
                    raise EngineError(
                        f"{url}: no answer about a batch file within {config.retry_timeout_s:g} s "
                        "(engine.retry_timeout_s); nothing is lost: resume when the endpoint "
                        f"answers ({fault})"
                    ) from None
                self.rest(pause_s)

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait, at most until `until` returns true.

        Raises:
            EngineError: if the engine is closed meanwhile.
        """
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not until():
            if self._engine.closed.wait(min(left, POLL_S)):
                raise EngineError(CLOSED)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def require_batches(self) -> None:
        """Refuse an endpoint that does not support batch files.

        Raises:
            EngineError: with the endpoint's status.
        """
        try:
            self._client.batches.list(limit=1)
        except openai.APIStatusError as error:
            if error.status_code not in NONE_HERE:
                raise
            raise EngineError(
                f"{self._engine.url}: this endpoint does not accept batch files (HTTP "
                f"{error.status_code} at /batches): set engine.batch=false"
            ) from None

    def upload(self, data: bytes) -> str:
        """Send a file of requests; return its name there."""
        named = ("requests.jsonl", data, "application/jsonl")
        return _text(self._client.files.create(file=named, purpose="batch").id)

    def find_or_create(self, file: str) -> str:
        """Return the batch that answers a file; create it if it does not exist yet."""
        for batch in self._client.batches.list(limit=PAGE):
            if batch.input_file_id == file:
                return _text(batch.id)
        created = self._client.batches.create(
            input_file_id=file, endpoint=ANSWERS_AT, completion_window="24h"
        )
        return _text(created.id)

    def state(self, batch: str) -> openai.types.Batch:
        """Return the state of a batch."""
        return self._client.batches.retrieve(batch)

    def replies(self, file: str) -> dict[str, tuple[int, Any]]:
        """Return status and body of the replies in a file, by name; empty if the file is gone."""
        data = bytearray()
        try:
            with self._client.files.with_streaming_response.content(file) as reply:
                for part in reply.iter_bytes():
                    data += part
                    if len(data) > OUTPUT_BYTES:
                        raise AnswerTooLargeError
        except openai.NotFoundError:
            return {}
        return dict(filter(None, map(_reply, bytes(data).splitlines())))

    def _attempt(self, ask: Callable[[], T]) -> T:
        """Make the call once.

        Raises:
            TemporaryError, RefusedError, GoneError, EngineError: for every failure.
        """
        url, key = self._engine.url, self._engine.key
        try:
            return ask()
        except openai.NotFoundError:
            fault = GoneError()
        except openai.APIStatusError as error:
            reply = error.response
            failure = StatusError(reply.status_code, reply.headers, reply.content)
            fault = fault_of(url, failure, key)
        except openai.APIConnectionError as error:
            message = (
                f"the endpoint cannot be reached ({shorten(str(error.__cause__ or error), key)})"
            )
            fault = TemporaryError(message, kind="lost")
        except (openai.OpenAIError, *ATTEMPT_ERRORS) as error:
            fault = fault_of(url, error, key)
        raise fault  # outside: a traceback from within would hold the server's text


class _Session:
    """One call of `generate`: its open requests, and the files they were sent in."""

    def __init__(self, engine: BatchFileEngine, api: _BatchApi, served: ServedModel) -> None:
        self._engine, self._api, self._served = engine, api, served
        known = map(_SentFile, _records(engine.folder, engine.url))
        self._known = {name: file for file in known for name in file.record.requests}
        self._names = Counter[str]()
        self._waiting: list[_Line] = []
        self._sent: list[_SentFile] = []
        self._finished: list[BatchResult] = []
        self._open: set[_OpenBatch] = set()

    def draw(self, source: Iterator[Batch]) -> Iterator[BatchResult]:
        """Yield the batches of a source when they are whole."""
        more = True
        while more or self._open:
            config, before = self._engine.config, len(self._waiting)
            more = self._gather(source, config.batch_most, more=more)
            joined = len(self._waiting) > before
            is_due = len(self._waiting) >= config.batch_most or not (joined and more)
            if is_due and not is_stopping(source):
                self._send(config)
            self._look()
            finished, self._finished = self._finished, []
            yield from finished
            self._forget_answered(config)
            if self._open and not finished:
                self._api.rest(config.batch_poll_s, until=partial(is_stopping, source))
            if is_stopping(source):
                return

    def log_unanswered(self) -> None:
        """Log the batches that continue without this process."""
        for file in self._sent:
            logger.warning(
                "batch %s continues at %s, with %s requests: the run waits for it again when "
                "resumed",
                file.record.batch or f"of file {file.record.file}",
                self._engine.url,
                len(file.lines),
            )

    def _gather(self, source: Iterator[Batch], most: int, *, more: bool) -> bool:
        """Take the available batches; return whether more may come."""
        while more and len(self._waiting) < most:
            try:
                batch = take(source, wait=not self._open)
            except StopIteration:
                return False
            if batch is None:
                break
            self._engine.direct.refuse_texts(batch.sampling)
            self._add(batch)
        return more

    def _add(self, batch: Batch) -> None:
        """Take a batch: wait for its requests that were sent before, and queue the others."""
        opened = _OpenBatch(batch.key, [None] * len(batch.requests))
        self._open.add(opened)
        for place, request in enumerate(batch.requests):
            name = self._name(request, batch.sampling)
            chat = ChatRequest(request, batch.sampling, self._engine.count)
            line = _Line(name, chat, opened, place)
            file = self._known.pop(name, None)
            if file is None:
                self._waiting.append(line)
                continue
            file.lines[name] = line
            if file not in self._sent:
                self._sent.append(file)

    def _name(self, request: Request, sampling: Sampling) -> str:
        """Return a name that hashes the whole request, so that it is the same in every process."""
        fields: Json = {
            "request": request.request_id,
            "seed": request.seed,
            "messages": [[m.role, m.content] for m in request.messages],
            "sampling": asdict(sampling),
            "asked_of": [self._served.name, self._engine.config.extra_fields],
        }
        name = digest(fields)[:40]
        self._names[name] += 1
        # A request that occurs twice is answered twice.
        return f"{name}-{self._names[name]}"

    def _give(self, line: _Line, drawn: Completion) -> None:
        """Take an answer; if its batch is whole now, return the batch to the caller."""
        line.of.drawn[line.place] = drawn
        whole = [completion for completion in line.of.drawn if completion is not None]
        if len(whole) == len(line.of.drawn):
            self._finished.append(BatchResult(key=line.of.key, answers=tuple(whole)))
            self._open.discard(line.of)

    def _forget_answered(self, config: EngineConfig) -> None:
        """Remove the records of files whose answers their caller has had for a while.

        By then the run has stored them, and does not request them again after a crash. The file may
        belong to another call of `generate`, in this thread or in another one.
        """
        now = time.monotonic()
        with self._engine.forgetting:
            for file in list(self._engine.answered):
                if any(None in batch.drawn for batch in {line.of for line in file.lines.values()}):
                    file.answered_at = now
                elif now - file.answered_at > config.batch_poll_s:
                    self._engine.answered.remove(file)
                    discard(file.record.path(self._engine.folder))

    def _send(self, config: EngineConfig) -> None:
        """Send the queued lines: in files, or directly if there are too few for one."""
        with self._engine.learning:
            while self._waiting and not self._engine.has_learned:
                line = self._waiting.pop(0)
                self._ask_directly([line])
                drawn = line.of.drawn[line.place]
                self._engine.has_learned = drawn is not None and drawn.error is None
        if len(self._waiting) < config.batch_least:
            few, self._waiting = self._waiting, []
            self._ask_directly(few)
        while self._waiting:
            self._send_file(config)

    def _send_file(self, config: EngineConfig) -> None:
        """Send as many lines as one file takes."""
        written, size = list[bytes](), 0
        for line in self._waiting[: config.batch_most]:
            text = self._write_line(line, config)
            size += len(text)
            if written and size > FILE_BYTES:
                break
            written.append(text)
        lines, self._waiting = self._waiting[: len(written)], self._waiting[len(written) :]
        name = self._api.call(lambda: self._api.upload(b"".join(written)))
        record = BatchRecord(
            url=self._engine.url, file=name, requests=tuple(line.name for line in lines)
        )
        file = _SentFile(record, {line.name: line for line in lines})
        self._keep(file)
        self._sent.append(file)

    def _keep(self, file: _SentFile) -> None:
        folder = make_folder(self._engine.folder)
        write_file(file.record.path(folder), json.dumps(asdict(file.record)).encode())

    def _write_line(self, line: _Line, config: EngineConfig) -> bytes:
        """Return the line of a file with the content of a direct request."""
        fields = vllm_fields(self._served, self._engine.url, line.chat.sampling, config)
        extra = {**fields, **config.extra_fields}
        body = {
            "custom_id": line.name,
            "method": "POST",
            "url": ANSWERS_AT,
            "body": line.chat.body(self._served, self._engine.direct.unsupported, extra),
        }
        return json.dumps(body).encode() + b"\n"

    def _ask_directly(self, lines: Sequence[_Line]) -> None:
        """Send requests directly, at the full price."""
        batches = [
            Batch(key=str(n), requests=(line.chat.request,), sampling=line.chat.sampling)
            for n, line in enumerate(lines)
        ]
        for result in self._engine.direct.generate(batches):
            self._give(lines[int(result.key)], *result.answers)

    def _look(self) -> None:
        """Poll the batches, and take the answers of finished ones."""
        for file in list(self._sent):
            try:
                state = self._api.call(partial(self._api.state, self._batch_of(file)))
            except GoneError:
                logger.warning(
                    "%s knows nothing of the batch of file %s: %s requests are sent again",
                    self._engine.url,
                    file.record.file,
                    len(file.lines),
                )
                self._drop(file)
                self._waiting += file.lines.values()
                continue
            if state.status in ENDED:
                self._settle(file, state)

    def _batch_of(self, file: _SentFile) -> str:
        """Return the batch that answers a file, once it is on record.

        Raises:
            GoneError: if the endpoint does not know the file.
        """
        if file.record.batch is None:
            batch = self._api.call(lambda: self._api.find_or_create(file.record.file))
            file.record = replace(file.record, batch=batch)
            self._keep(file)
            logger.info(
                "batch %s at %s: %s requests", batch, self._engine.url, len(file.record.requests)
            )
        return str(file.record.batch)

    def _drop(self, file: _SentFile) -> None:
        self._sent.remove(file)
        discard(file.record.path(self._engine.folder))

    def _settle(self, file: _SentFile, state: openai.types.Batch) -> None:
        """Take the answers of a finished batch; queue the other requests again."""
        if state.status == "failed":
            self._drop(file)
            listed = None if state.errors is None else state.errors.data
            message: object = listed[0].message if listed else None
            why = shorten(message, self._engine.key) if isinstance(message, str) else ""
            raise EngineError(
                f"{self._engine.url}: the batch {file.record.batch} failed: "
                f"{why or 'the endpoint does not say why'}; if it is too large for your account, "
                "lower engine.batch_most"
            )
        replies = dict[str, tuple[int, Any]]()
        for name in filter(None, (state.output_file_id, state.error_file_id)):
            replies |= self._api.call(partial(self._api.replies, name))
        self._sent.remove(file)
        file.answered_at = time.monotonic()
        self._engine.answered.append(file)
        directly = list[_Line]()
        for line in file.lines.values():
            drawn = self._read(line, replies.get(line.name))
            line.tries += 1
            if isinstance(drawn, Completion):
                self._give(line, drawn)
            elif isinstance(drawn, TemporaryError) and line.tries < TRIES:
                self._waiting.append(line)
            else:
                # It was not charged, and a direct request can leave out unsupported parameters.
                directly.append(line)
        self._ask_directly(directly)

    def _read(
        self, line: _Line, reply: tuple[int, Any] | None
    ) -> Completion | RefusedError | TemporaryError:
        """Return the answer in a reply, or the reason why it is not one.

        Raises:
            EngineError: for a reply after which no request will be answered.
        """
        if reply is None:
            return MISSING_LINE
        (status, body), key = reply, self._engine.key
        try:
            if status != HTTPStatus.OK:
                raise StatusError(status, {}, json.dumps(body).encode())
            drawn = line.chat.completion(body, self._engine.direct.unsupported, key)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self._engine.url, error, key)
        else:
            provenance = drawn.provenance
            batched = None if provenance is None else replace(provenance, batched=True)
            return replace(drawn, provenance=batched)
        if isinstance(fault, DeniedError):
            return RefusedError(fault.reason, text="")
        if isinstance(fault, EngineError):
            raise fault
        return fault


def _records(folder: Path, url: str) -> Iterator[BatchRecord]:
    """Yield the records of files that were sent to an endpoint."""
    for path in folder.glob("[!.]*.json"):
        fields: dict[str, Any] = json.loads(path.read_bytes())
        if fields["url"] == url:
            record = BatchRecord(**fields)
            yield replace(record, requests=tuple(record.requests))


def _client(url: str, key: str | None) -> openai.OpenAI:
    """Return a client that sends nothing about this machine, and connects only to this endpoint."""
    parts = urlsplit(url)

    def with_own_headers(request: Any) -> None:
        for name in [*request.headers]:
            if name.lower() not in OF_THE_BODY:
                del request.headers[name]
        request.headers.update({**SENT, "Authorization": f"Bearer {key or NO_KEY}"})

    return openai.OpenAI(
        base_url=urlunsplit(parts._replace(query="")),
        default_query=dict(parse_qsl(parts.query)),
        api_key=key or NO_KEY,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(
            trust_env=False, follow_redirects=False, event_hooks={"request": [with_own_headers]}
        ),
    )


def _text(name: object) -> str:
    """Return a name from an endpoint; raise TypeError if it is not a text."""
    if not isinstance(name, str):
        raise TypeError
    return name


def _reply(line: bytes) -> tuple[str, tuple[int, Any]] | None:
    """Return the reply in a line of an answer file; None if it cannot be parsed."""
    if not is_reasonable(line):
        return None
    try:
        document: Any = json.loads(line)
        name: Any = document["custom_id"]
        response: Any = document.get("response") or {}
        status: Any = response.get("status_code")
        body: Any = response.get("body")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return (name, (status, body)) if isinstance(name, str) and isinstance(status, int) else None
