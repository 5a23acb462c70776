"""The requests of one call of `generate` that go by batch files, and where each stands."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from ...stores.keys import Json, digest
from ..engines.engine import Batch, BatchResult, Completion, Request, Sampling
from .batch_records import BatchRecord

TRIES = 3
"""In so many files a request may go unanswered."""


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


@dataclass(slots=True, eq=False)
class BatchSession:
    """What was asked and is not given back, and the files that are at the endpoint.

    `asked_of` is what all requests share: the model and what is added to each body. `known` are the
    files that an earlier process sent, by the names of what they ask.
    """

    asked_of: Json
    known: dict[str, SentFile]
    waiting: list[BatchLine] = field(default_factory=list[BatchLine])
    sent: list[SentFile] = field(default_factory=list[SentFile])
    finished: list[BatchResult] = field(default_factory=list[BatchResult])
    open: int = 0
    _names: Counter[str] = field(default_factory=Counter[str])

    def add(self, batch: Batch) -> None:
        """Take a batch: what was sent before is waited for, the rest waits to be sent."""
        opened = AwaitedBatch(batch.key, [None] * len(batch.requests))
        self.open += 1
        for place, request in enumerate(batch.requests):
            name = self._name(request, batch.sampling)
            line = BatchLine(name, request, batch.sampling, opened, place)
            file = self.known.pop(name, None)
            if file is None:
                self.waiting.append(line)
            else:
                self._await(file, line)

    def take(self, most: int) -> list[BatchLine]:
        """Take the first lines that wait to be sent."""
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return taken

    def give(self, line: BatchLine, drawn: Completion) -> None:
        """Take an answer; the batch that it makes whole is finished."""
        line.of.drawn[line.place] = drawn
        whole = [completion for completion in line.of.drawn if completion is not None]
        if len(whole) == len(line.of.drawn):
            self.finished.append(BatchResult(key=line.of.key, completions=tuple(whole)))

    def give_back(self) -> list[BatchResult]:
        """Return the batches that are whole, once."""
        finished, self.finished = self.finished, []
        self.open -= len(finished)
        return finished

    def _await(self, file: SentFile, line: BatchLine) -> None:
        file.lines[line.name] = line
        if file not in self.sent:
            self.sent.append(file)

    def _name(self, request: Request, sampling: Sampling) -> str:
        """Return a name that says all that is asked: the same question has it in every process."""
        said: Json = {
            "request": request.request_id,
            "seed": request.seed,
            "messages": [[m.role, m.content] for m in request.messages],
            "sampling": asdict(sampling),
            "asked_of": self.asked_of,
        }
        name = digest(said)[:40]
        self._names[name] += 1
        # Asked twice, it is answered twice.
        return f"{name}-{self._names[name]}"
