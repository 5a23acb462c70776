"""Sampling by batch files: what is asked is gathered, sent as one file, answered within a day.

Only what is worth a file goes so. A first request is sent directly, and shows what of a request the
endpoint takes before thousands are written so. Too few requests for a file, and those that are
refused in one, go directly, too.

Which files were sent is on disk before they are answered (`batch_records`): who asks the same
again, after a stop or a crash, waits for the same batch.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from ...configs.schema import EngineConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
)
from ..engines.feed import arrived, is_stopping
from ..engines.token_count import token_count
from .batch_calls import BatchCalls, GoneError
from .batch_endpoint import BatchEndpoint, BatchState, LineReply
from .batch_lines import LineForm
from .batch_records import BatchRecord, BatchRecords
from .batch_session import TRIES, BatchLine, BatchSession, SentFile
from .endpoint import ServedModel, addresses, api_key
from .faults import RefusedError
from .openai_engine import OpenAIEngine, failed

FILE_BYTES = 200_000_000
"""The largest file of requests that endpoints take."""

SLICE = 32
"""Requests that are asked directly together."""

logger = logging.getLogger("lpfloop.batches")


@dataclass(frozen=True, slots=True)
class _BatchTalk:
    """One call of `generate`: what it waits for, and how it asks."""

    calls: BatchCalls
    served: ServedModel
    session: BatchSession

    @property
    def endpoint(self) -> BatchEndpoint:
        return self.calls.endpoint


class BatchFileEngine:
    """One OpenAI-compatible endpoint that takes batch files."""

    name = "openai"

    def __init__(self, model: str, config: EngineConfig, *, folder: Path) -> None:
        """Set up the endpoint; it is not contacted before the first request.

        `folder` keeps which files were sent.

        Raises:
            EngineError: when the address is not an http(s) URL.
        """
        [self._url] = addresses(model, config)
        self._key = api_key(config)
        self._config = config
        self._direct = OpenAIEngine(model, config)
        self._form = LineForm(url=self._url, key=self._key, count=token_count(model))
        self._records = BatchRecords(folder, self._url)
        self._closed = threading.Event()
        self._learning = threading.Lock()
        self._is_learned = False

    def configure(self, config: EngineConfig) -> None:
        """Use new sizes of files, pauses and limits from the next file on."""
        self._config = config
        self._direct.configure(config)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: endpoints cannot score given answers."""
        return self._direct.logprobs(conversations)

    def close(self) -> None:
        """End all waiting; batches go on at the endpoint."""
        self._closed.set()
        self._direct.close()

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; give each batch back when whole.

        A file is sent when it is full, or nothing has joined it from one look at the endpoint to
        the next. When the source is asked to stop, the files that were sent are left to the
        endpoint.

        Raises:
            EngineError: when the endpoint takes no batch files, or a batch fails as a whole.
        """
        endpoint = BatchEndpoint.at(self._url, self._key)
        calls = BatchCalls(endpoint, lambda: self._config, self._closed)
        try:
            served = calls(lambda: endpoint.served(self._config.model_name))
            talk = _BatchTalk(calls, served, self._session(served))
            try:
                yield from self._drawn(talk, iter(batches))
            finally:
                self._tell(talk.session)
        finally:
            calls.end()

    def _session(self, served: ServedModel) -> BatchSession:
        known = {
            name: file
            for file in (SentFile(record) for record in self._records.all())
            for name in file.record.asked
        }
        return BatchSession(asked_of=[served.name, self._config.besides], known=known)

    def _drawn(self, talk: _BatchTalk, source: Iterator[Batch]) -> Iterator[BatchResult]:
        session, more = talk.session, True
        while more or session.open:
            before = len(session.waiting)
            more = self._gathered(session, source, more=more)
            joined = len(session.waiting) > before
            is_due = self._is_full(session) or not (joined and more)
            if is_due and not is_stopping(source):
                self._send(talk)
            self._look(talk)
            finished = session.give_back()
            yield from finished
            if session.open and not finished:
                talk.calls.rest(self._config.batch_poll_s, until=partial(is_stopping, source))
            if is_stopping(source):
                return

    def _is_full(self, session: BatchSession) -> bool:
        return len(session.waiting) >= self._config.batch_most

    def _gathered(self, session: BatchSession, source: Iterator[Batch], *, more: bool) -> bool:
        """Take the batches that are there; return whether more may come."""
        while more and not self._is_full(session) and (not session.open or arrived(source)):
            batch = next(source, None)
            if batch is None:
                return False
            self._direct.refuse_texts(batch.sampling)
            session.add(batch)
        return more

    def _send(self, talk: _BatchTalk) -> None:
        """Send what waits: in files, or directly if it is too little for one."""
        session = talk.session
        with self._learning:
            while session.waiting and not self._is_learned:
                self._ask_directly(session, session.take(1))
        if len(session.waiting) < self._config.batch_least:
            self._ask_directly(session, session.take(len(session.waiting)))
        while session.waiting:
            self._send_file(talk)

    def _send_file(self, talk: _BatchTalk) -> None:
        """Send as many lines as one file takes."""
        session, endpoint = talk.session, talk.endpoint
        written, size = list[bytes](), 0
        for line in session.waiting[: self._config.batch_most]:
            text = self._form.written(line, talk.served, self._direct.dialect, self._config)
            size += len(text)
            if written and size > FILE_BYTES:
                break
            written.append(text)
        lines = session.take(len(written))
        data = b"".join(written)
        file = talk.calls(lambda: endpoint.upload(data))
        names = tuple(line.name for line in lines)
        number = max((record.number for record in self._records.all()), default=0) + 1
        record = BatchRecord(number=number, url=self._url, file=file, asked=names)
        self._records.keep(record)
        session.sent.append(SentFile(record, {line.name: line for line in lines}))

    def _ask_directly(self, session: BatchSession, lines: Sequence[BatchLine]) -> None:
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
        for result in self._direct.generate(batches):
            for line, drawn in zip(parts[int(result.key)], result.completions, strict=True):
                self._is_learned |= drawn.finish_reason != "failed"
                session.give(line, drawn)

    def _look(self, talk: _BatchTalk) -> None:
        """See which batches have ended, and take what they answer."""
        for file in list(talk.session.sent):
            try:
                self._begin(talk, file)
                state = talk.calls(partial(talk.endpoint.state, str(file.record.batch)))
            except GoneError:
                logger.warning(
                    "%s knows nothing of the batch of file %s: %s requests are sent again",
                    *(self._url, file.record.file, len(file.lines)),
                )
                self._forget(talk.session, file)
                talk.session.waiting += file.lines.values()
                continue
            if state.ended is not None:
                self._settle(talk, file, state)

    def _begin(self, talk: _BatchTalk, file: SentFile) -> None:
        """See that a file is answered by a batch, and that this is on disk."""
        if file.record.batch is None:
            batch = talk.calls(lambda: talk.endpoint.begun(file.record.file))
            file.record = replace(file.record, batch=batch)
            self._records.keep(file.record)
            logger.info("batch %s at %s: %s requests", batch, self._url, len(file.record.asked))

    def _forget(self, session: BatchSession, file: SentFile) -> None:
        session.sent.remove(file)
        self._records.forget(file.record)

    def _settle(self, talk: _BatchTalk, file: SentFile, state: BatchState) -> None:
        """Take what a batch that has ended answers; ask the rest again."""
        if state.ended == "failed":
            self._forget(talk.session, file)
            raise EngineError(
                f"{self._url}: the batch {file.record.batch} failed: "
                f"{state.told or 'the endpoint does not say why'}; if it is too large for your "
                "account, lower engine.batch_most"
            )
        replies = dict[str, LineReply]()
        for name in state.files:
            replies |= talk.calls(partial(talk.endpoint.replies, name))
        talk.session.sent.remove(file)
        refused = list[BatchLine]()
        unanswered = list[tuple[BatchLine, str]]()
        for line in file.lines.values():
            drawn = self._form.read(line, replies.get(line.name), self._direct.dialect)
            if isinstance(drawn, Completion):
                talk.session.give(line, drawn)
            elif isinstance(drawn, RefusedError):
                refused.append(line)
            else:
                unanswered.append((line, str(drawn)))
        self._again(talk.session, unanswered, any_answered=len(unanswered) < len(file.lines))
        # Nothing was billed for them, and a direct request can leave out what is not taken.
        self._ask_directly(talk.session, refused)

    def _again(
        self, session: BatchSession, lines: Sequence[tuple[BatchLine, str]], *, any_answered: bool
    ) -> None:
        """Let lines be sent again that were not answered, but not for ever."""
        for line, why in lines:
            line.tries += 1
            if line.tries < TRIES:
                session.waiting.append(line)
            elif any_answered:
                session.give(
                    line, failed(line.request, f"no answer in {TRIES} batch files ({why})")
                )
            else:
                raise EngineError(
                    f"{self._url}: {TRIES} batch files ended without any answer ({why}); nothing "
                    "is lost: resume when the endpoint is less busy, or with engine.batch=false"
                )

    def _tell(self, session: BatchSession) -> None:
        """Say what goes on without this process."""
        for file in session.sent:
            logger.warning(
                "batch %s goes on at %s, with %s requests: the run waits for it again when resumed",
                *(file.record.batch or f"of file {file.record.file}", self._url, len(file.lines)),
            )
