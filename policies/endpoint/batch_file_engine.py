"""Sampling by batch files: requests are gathered and sent as one file, answered within a day.

A first request is sent directly, and shows what of a request the endpoint takes before thousands
are written so. Too few requests for a file, and those that are refused in one, go directly, too.

A record of each file is on disk before its batch begins. A later process that asks the same again,
after a stop or a crash, finds the record and waits for the same batch, so no request is paid twice.
"""

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import openai

from ...configs.schema import EngineConfig
from ...stores.durable import discard, make_folder, write_file
from ...stores.keys import Json, digest
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from ..engines.feed import arrived, is_stopping
from ..engines.token_count import token_count
from .chat_completion import ChatRequest, vllm_fields
from .endpoint import ServedModel, addresses, api_key, ask
from .faults import ATTEMPT_ERRORS, DeniedError, RefusedError, TemporaryError, fault_of, shown
from .openai_engine import CLOSED, OpenAIEngine, failed, keyless
from .transport import (
    ANSWER_BYTES,
    ANSWER_PARTS,
    AnswerTooLargeError,
    Connections,
    StatusError,
    openai_client,
)

T = TypeVar("T")

FILE_BYTES = 200_000_000
"""The largest file of requests that endpoints take."""
OUTPUT_BYTES = 2**30
"""The largest file of answers that is read."""
PAGE = 100
"""Batches that are listed at once."""
SLICE = 32
"""Requests that are asked directly together."""
TRIES = 3
"""In so many files a request may go unanswered."""

ANSWERS_AT = "/v1/chat/completions"
"""What each line asks for, whatever stands before it in the endpoint's address."""

ATTEMPT_S = 3600.0
"""The deadline of one call, which may send or fetch a whole file."""
TURN_S = 0.1
"""How soon a transfer notices that the engine is closed."""
FORGET_S = 600.0
"""The record of a file is removed so long after its answers were given back: the run has stored
them by then, and does not ask again after a crash.
"""

NONE_HERE = frozenset({404, 405, 501})
ENDED = ("completed", "expired", "cancelled", "failed")
MISSING_LINE = TemporaryError("the batch ended without an answer to it", kind="busy")

logger = logging.getLogger("lpfloop.batches")


class GoneError(Exception):
    """The endpoint does not know what it is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A file of requests at an endpoint: the names of its lines, and the batch that answers it."""

    url: str
    file: str
    asked: tuple[str, ...]
    batch: str | None = None

    def path(self, folder: Path) -> Path:
        """Return where the record is kept."""
        return folder / f"{digest([self.url, self.file])[:32]}.json"


@dataclass(slots=True, eq=False)
class AwaitedBatch:
    """A batch of the caller, which is given back when it is whole."""

    key: str
    drawn: list[Completion | None]


@dataclass(slots=True, eq=False)
class BatchLine:
    """A request by the name that it has in files; `tries` counts those that did not answer it."""

    name: str
    request: Request
    sampling: Sampling
    of: AwaitedBatch
    place: int
    tries: int = 0


@dataclass(slots=True, eq=False)
class SentFile:
    """A file that was sent, and those of its lines that are waited for."""

    record: BatchRecord
    lines: dict[str, BatchLine] = field(default_factory=dict[str, BatchLine])


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReply:
    """What came of one line of a file."""

    status: int
    body: Any


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
        self.direct = OpenAIEngine(model, config)
        self.count = token_count(model)
        self.closed = threading.Event()
        self._learning = threading.Lock()
        self._is_learned = False
        self._folder = folder
        self._answered: list[tuple[float, BatchRecord]] = []

    def configure(self, config: EngineConfig) -> None:
        """Use new sizes of files, pauses and limits from the next file on."""
        self.config = config
        self.direct.configure(config)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return self.direct.logprobs(conversations)

    def close(self) -> None:
        """End all waiting; batches go on at the endpoint."""
        self.closed.set()
        self.direct.close()

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole.

        A file is sent when it is full, or nothing has joined it from one look at the endpoint to
        the next. When the source is asked to stop, the files that were sent are left to the
        endpoint.

        Raises:
            EngineError: when the endpoint takes no batch files, or a batch fails as a whole.
        """
        api = BatchApi(self)
        try:
            served = api.call(lambda: api.served(self.config.model_name))
            session = _Session(self, api, served)
            try:
                yield from session.drawn(iter(batches))
            finally:
                session.tell()
        finally:
            api.close()

    def records(self) -> list[BatchRecord]:
        """Return the records of files that were sent to this endpoint."""
        read: list[dict[str, Any]] = [
            json.loads(path.read_bytes()) for path in self._folder.glob("[!.]*.json")
        ]
        records = [BatchRecord(**fields) for fields in read if fields["url"] == self.url]
        return [replace(record, asked=tuple(record.asked)) for record in records]

    def keep(self, record: BatchRecord) -> None:
        """Write a record, in the place of one of the same file."""
        make_folder(self._folder)
        write_file(record.path(self._folder), json.dumps(asdict(record)).encode())

    def forget(self, record: BatchRecord) -> None:
        """Remove a record."""
        discard(record.path(self._folder))

    def note_answered(self, record: BatchRecord) -> None:
        """Remove a record soon: its answers were given back."""
        self._answered.append((time.monotonic(), record))

    def forget_answered(self) -> None:
        """Remove the records whose answers were given back long enough ago."""
        due = time.monotonic() - FORGET_S
        while self._answered and self._answered[0][0] <= due:
            self.forget(self._answered.pop(0)[1])

    def ask_directly(self, lines: Sequence[BatchLine]) -> Iterator[tuple[BatchLine, Completion]]:
        """Ask one by one, at the full price."""
        parts = [
            part[start : start + SLICE]
            for _, group in groupby(lines, key=lambda line: line.sampling)
            for part in [list(group)]
            for start in range(0, len(part), SLICE)
        ]
        batches = [
            Batch(
                key=str(number),
                requests=tuple(line.request for line in part),
                sampling=part[0].sampling,
            )
            for number, part in enumerate(parts)
        ]
        for result in self.direct.generate(batches):
            yield from zip(parts[int(result.key)], result.completions, strict=True)

    def learn(self, waiting: list[BatchLine]) -> Iterator[tuple[BatchLine, Completion]]:
        """Ask first lines directly, until one is answered: that shows what the endpoint takes."""
        with self._learning:
            while waiting and not self._is_learned:
                for line, drawn in self.ask_directly([waiting.pop(0)]):
                    self._is_learned = drawn.finish_reason != "failed"
                    yield line, drawn


class BatchApi:
    """The calls about batch files, from the caller's thread, each tried until patience ends."""

    def __init__(self, engine: BatchFileEngine) -> None:
        self._engine = engine
        self._url, self._key = engine.url, engine.key
        self._client = openai_client(engine.url, engine.key)
        self._loop = asyncio.new_event_loop()

    def call(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a call gives.

        Raises:
            GoneError: if it asks about what is not there.
            EngineError: if it is refused, or fails until patience ends.
        """
        since: float | None = None
        while True:
            try:
                return self._loop.run_until_complete(self._attempt(ask()))
            except RefusedError as refusal:
                told = f"{self._url}: the endpoint refuses a batch file ({refusal})"
                raise EngineError(told) from None
            except TemporaryError as fault:
                now, config = time.monotonic(), self._engine.config
                since = now if since is None else since
                pause_s = max(fault.pause_s or 0.0, config.batch_poll_s)
                if now - since + pause_s > config.patience_s:
                    raise EngineError(
                        f"{self._url}: no answer about a batch file within {config.patience_s:g} s "
                        "(engine.patience_s); nothing is lost: resume when the endpoint answers "
                        f"({fault})"
                    ) from None
                self.rest(pause_s)

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait, at most `until` something is so.

        Raises:
            EngineError: if the engine is closed meanwhile.
        """
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not until():
            if self._engine.closed.wait(min(left, TURN_S)):
                raise EngineError(CLOSED)

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    async def served(self, model_name: str | None) -> ServedModel:
        """Return the model that is asked, once the endpoint is known to take batch files.

        Raises:
            EngineError: if it does not; and as `endpoint.ask`.
        """
        try:
            await self._client.batches.list(limit=1)
        except openai.APIStatusError as error:
            if error.status_code not in NONE_HERE:
                raise
            status = error.status_code
        else:
            return await ask(Connections(self._url, self._key), model_name)
        raise EngineError(
            f"{self._url}: this endpoint takes no batch files (HTTP {status} at /batches): set "
            "engine.batch=false"
        )

    async def upload(self, data: bytes) -> str:
        """Send a file of requests; return its name there."""
        named = ("requests.jsonl", data, "application/jsonl")
        return _text((await self._client.files.create(file=named, purpose="batch")).id)

    async def begun(self, file: str) -> str:
        """Return the batch that answers a file; begin it, unless that was done before."""
        async for batch in self._client.batches.list(limit=PAGE):
            if batch.input_file_id == file:
                return _text(batch.id)
        created = await self._client.batches.create(
            input_file_id=file, endpoint=ANSWERS_AT, completion_window="24h"
        )
        return _text(created.id)

    async def state(self, batch: str) -> openai.types.Batch:
        """Return how far a batch is."""
        return await self._client.batches.retrieve(batch)

    async def replies(self, file: str) -> dict[str, LineReply]:
        """Return the replies in a file by the names of their requests; none if it is gone."""
        data = bytearray()
        try:
            async with self._client.files.with_streaming_response.content(file) as reply:
                async for part in reply.iter_bytes():
                    data += part
                    if len(data) > OUTPUT_BYTES:
                        raise AnswerTooLargeError
        except openai.NotFoundError:
            return {}
        return dict(filter(None, map(_reply, data.splitlines())))

    async def _attempt(self, asked: Coroutine[Any, Any, T]) -> T:
        """Ask once.

        Raises:
            TemporaryError, RefusedError, GoneError, EngineError: for every failure.
        """
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._unless_closed(asked)
        except openai.NotFoundError:
            fault = GoneError()
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self._url, error, self._key)
        raise fault  # outside: a traceback from within would hold the server's text

    async def _unless_closed(self, asked: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(asked)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TURN_S)
                if self._engine.closed.is_set():
                    raise EngineError(CLOSED)
            return task.result()
        finally:
            task.cancel()


class _Session:
    """One call of `generate`: what was asked and is not given back, and the files of it."""

    def __init__(self, engine: BatchFileEngine, api: BatchApi, served: ServedModel) -> None:
        self._engine, self._api, self._served = engine, api, served
        self._known = {
            name: file for file in map(SentFile, engine.records()) for name in file.record.asked
        }
        self._names = Counter[str]()
        self._waiting: list[BatchLine] = []
        self._sent: list[SentFile] = []
        self._settled: list[SentFile] = []
        self._finished: list[BatchResult] = []
        self._open: set[AwaitedBatch] = set()

    def drawn(self, source: Iterator[Batch]) -> Iterator[BatchResult]:
        """Give the batches of a source back."""
        config, more = self._engine.config, True
        while more or self._open:
            config, before = self._engine.config, len(self._waiting)
            more = self._gathered(source, config.batch_most, more=more)
            joined = len(self._waiting) > before
            is_due = len(self._waiting) >= config.batch_most or not (joined and more)
            if is_due and not is_stopping(source):
                self._send(config)
            self._look()
            finished, self._finished = self._finished, []
            yield from finished
            self._note_given_back()
            if self._open and not finished:
                self._api.rest(config.batch_poll_s, until=partial(is_stopping, source))
            if is_stopping(source):
                return

    def tell(self) -> None:
        """Say what goes on without this process."""
        for file in self._sent:
            logger.warning(
                "batch %s goes on at %s, with %s requests: the run waits for it again when resumed",
                file.record.batch or f"of file {file.record.file}",
                self._engine.url,
                len(file.lines),
            )

    def _gathered(self, source: Iterator[Batch], most: int, *, more: bool) -> bool:
        """Take the batches that are there; return whether more may come."""
        while more and len(self._waiting) < most and (not self._open or arrived(source)):
            batch = next(source, None)
            if batch is None:
                return False
            self._engine.direct.refuse_texts(batch.sampling)
            self._add(batch)
        return more

    def _add(self, batch: Batch) -> None:
        """Take a batch: what was sent before is waited for, the rest waits to be sent."""
        opened = AwaitedBatch(batch.key, [None] * len(batch.requests))
        self._open.add(opened)
        for place, request in enumerate(batch.requests):
            name = self._name(request, batch.sampling)
            line = BatchLine(name, request, batch.sampling, opened, place)
            file = self._known.pop(name, None)
            if file is None:
                self._waiting.append(line)
                continue
            file.lines[name] = line
            if file not in self._sent:
                self._sent.append(file)

    def _name(self, request: Request, sampling: Sampling) -> str:
        """Return a name that says all that is asked: the same question has it in every process."""
        said: Json = {
            "request": request.request_id,
            "seed": request.seed,
            "messages": [[m.role, m.content] for m in request.messages],
            "sampling": asdict(sampling),
            "asked_of": [self._served.name, self._engine.config.besides],
        }
        name = digest(said)[:40]
        self._names[name] += 1
        # Asked twice, it is answered twice.
        return f"{name}-{self._names[name]}"

    def _give(self, line: BatchLine, drawn: Completion) -> None:
        """Take an answer; the batch that it makes whole is finished."""
        line.of.drawn[line.place] = drawn
        whole = [completion for completion in line.of.drawn if completion is not None]
        if len(whole) == len(line.of.drawn):
            self._finished.append(BatchResult(key=line.of.key, completions=tuple(whole)))
            self._open.discard(line.of)

    def _note_given_back(self) -> None:
        """Let the records of files be forgotten all of whose answers the caller has."""
        for file in list(self._settled):
            if self._open.isdisjoint(line.of for line in file.lines.values()):
                self._settled.remove(file)
                self._engine.note_answered(file.record)
        self._engine.forget_answered()

    def _send(self, config: EngineConfig) -> None:
        """Send what waits: in files, or directly if it is too little for one."""
        for line, drawn in self._engine.learn(self._waiting):
            self._give(line, drawn)
        if len(self._waiting) < config.batch_least:
            few, self._waiting = self._waiting, []
            self._ask_directly(few)
        while self._waiting:
            self._send_file(config)

    def _send_file(self, config: EngineConfig) -> None:
        """Send as many lines as one file takes."""
        written, size = list[bytes](), 0
        for line in self._waiting[: config.batch_most]:
            text = self._written(line, config)
            size += len(text)
            if written and size > FILE_BYTES:
                break
            written.append(text)
        lines, self._waiting = self._waiting[: len(written)], self._waiting[len(written) :]
        file = self._api.call(lambda: self._api.upload(b"".join(written)))
        names = tuple(line.name for line in lines)
        record = BatchRecord(url=self._engine.url, file=file, asked=names)
        self._engine.keep(record)
        self._sent.append(SentFile(record, {line.name: line for line in lines}))

    def _written(self, line: BatchLine, config: EngineConfig) -> bytes:
        """Return the line of a file that asks what a direct request would."""
        fields = vllm_fields(self._served, self._engine.url, line.sampling, config)
        extra = {**fields, **config.besides}
        asked = {
            "custom_id": line.name,
            "method": "POST",
            "url": ANSWERS_AT,
            "body": self._question(line).body(self._served, self._engine.direct.dialect, extra),
        }
        return json.dumps(asked).encode() + b"\n"

    def _question(self, line: BatchLine) -> ChatRequest:
        return ChatRequest(line.request, line.sampling, count=self._engine.count)

    def _ask_directly(self, lines: Sequence[BatchLine]) -> None:
        for line, drawn in self._engine.ask_directly(lines):
            self._give(line, drawn)

    def _look(self) -> None:
        """See which batches have ended, and take what they answer."""
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

    def _batch_of(self, file: SentFile) -> str:
        """Return the batch that answers a file, once it is on record.

        Raises:
            GoneError: if the endpoint does not know the file.
        """
        if file.record.batch is None:
            batch = self._api.call(lambda: self._api.begun(file.record.file))
            file.record = replace(file.record, batch=batch)
            self._engine.keep(file.record)
            logger.info(
                "batch %s at %s: %s requests", batch, self._engine.url, len(file.record.asked)
            )
        return str(file.record.batch)

    def _drop(self, file: SentFile) -> None:
        self._sent.remove(file)
        self._engine.forget(file.record)

    def _settle(self, file: SentFile, state: openai.types.Batch) -> None:
        """Take what a batch that has ended answers; ask the rest again."""
        if state.status == "failed":
            self._drop(file)
            raise EngineError(
                f"{self._engine.url}: the batch {file.record.batch} failed: "
                f"{shown(_complaint(state), self._engine.key) or 'the endpoint does not say why'}; "
                "if it is too large for your account, lower engine.batch_most"
            )
        replies = dict[str, LineReply]()
        for name in filter(None, (state.output_file_id, state.error_file_id)):
            replies |= self._api.call(partial(self._api.replies, name))
        self._sent.remove(file)
        self._settled.append(file)
        refused = list[BatchLine]()
        unanswered = list[tuple[BatchLine, str]]()
        for line in file.lines.values():
            drawn = self._read(line, replies.get(line.name))
            if isinstance(drawn, Completion):
                self._give(line, drawn)
            elif isinstance(drawn, RefusedError):
                refused.append(line)
            else:
                unanswered.append((line, str(drawn)))
        self._again(unanswered, any_answered=len(unanswered) < len(file.lines))
        # Nothing was billed for them, and a direct request can leave out what is not taken.
        self._ask_directly(refused)

    def _read(
        self, line: BatchLine, reply: LineReply | None
    ) -> Completion | RefusedError | TemporaryError:
        """Return the answer in a reply, or what keeps it from being one.

        Raises:
            EngineError: for a reply that says that none will ever be answered.
        """
        if reply is None:
            return MISSING_LINE
        url, key = self._engine.url, self._engine.key
        try:
            if reply.status != HTTPStatus.OK:
                raise StatusError(reply.status, {}, json.dumps(reply.body).encode())
            dialect = self._engine.direct.dialect
            drawn = self._question(line).answered(reply.body, dialect, key)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(url, error, key)
        else:
            told = drawn.provenance
            batched = None if told is None else replace(told, batched=True)
            return keyless(replace(drawn, provenance=batched))
        if isinstance(fault, DeniedError):
            return RefusedError(fault.reason, told="")
        if isinstance(fault, EngineError):
            raise fault
        return fault

    def _again(self, lines: Sequence[tuple[BatchLine, str]], *, any_answered: bool) -> None:
        """Let lines be sent again that were not answered, but not for ever."""
        for line, why in lines:
            line.tries += 1
            if line.tries < TRIES:
                self._waiting.append(line)
            elif any_answered:
                told = f"no answer in {TRIES} batch files ({why})"
                self._give(line, failed(line.request, told))
            else:
                raise EngineError(
                    f"{self._engine.url}: {TRIES} batch files ended without any answer ({why}); "
                    "nothing is lost: resume when the endpoint is less busy, or with "
                    "engine.batch=false"
                )


def _text(name: object) -> str:
    """Return a name that an endpoint gave; raise TypeError if it is none."""
    if not isinstance(name, str):
        raise TypeError
    return name


def _complaint(state: openai.types.Batch) -> str:
    """Return the first of a batch's errors."""
    listed = None if state.errors is None else state.errors.data
    said: object = listed[0].message if listed else None
    return said if isinstance(said, str) else ""


def _reply(line: bytearray) -> tuple[str, LineReply] | None:
    """Return the reply in a line of an answer file; None if it holds none that can be read."""
    if len(line) > ANSWER_BYTES or line.count(b"{") + line.count(b"[") > ANSWER_PARTS:
        return None
    try:
        told: Any = json.loads(line)
        name: Any = told["custom_id"]
        response: Any = told.get("response") or {}
        status: Any = response.get("status_code")
        body: Any = response.get("body")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str) or not isinstance(status, int):
        return None
    return name, LineReply(status=status, body=body)
