"""A question to a model, which may be repeated, and the line that its requests go out on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from ...stores.journal_reader import Cost
from .reporter import UnitStats

Request_co = TypeVar("Request_co", covariant=True)
Answer_contra = TypeVar("Answer_contra", contravariant=True)
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer = TypeVar("Answer")
Travelling = TypeVar("Travelling")


class RetryableRequest(Protocol[Request_co, Answer_contra]):
    """A question to a model, with the content of its latest answer: an immutable value."""

    @property
    def settled(self) -> bool:
        """Whether its requests are over: it was answered, or its attempts are used up."""
        ...

    @property
    def attempts(self) -> int:
        """The number of answers so far; above 0, the next request is a repetition."""
        ...

    def request(self) -> Request_co:
        """Return its next request, with a new seed."""
        ...

    def heard(self, answer: Answer_contra) -> Sequence[Self]:
        """Return the inquiry after an answer, or its parts, which then get separate requests."""
        ...


class ModelClient(Protocol[Request_contra, Answer, Travelling]):
    """The channel of requests to a model: their form, their maximal and their actual cost."""

    @property
    def judge(self) -> bool:
        """Whether the requests count as judge calls."""
        ...

    def batch(self, key: str, requests: Sequence[Request_contra], *, again: bool) -> Travelling:
        """Return requests as the engine takes them; `again` if they are repetitions."""
        ...

    def stream(self, batches: Iterable[Travelling]) -> Iterator[tuple[str, Sequence[Answer]]]:
        """Yield the answers to each batch with its key, in the order of its requests."""
        ...

    def most(self, requests: Sequence[Request_contra]) -> Cost:
        """Return the maximal cost of requests, each sent once."""
        ...

    def expected(self, requests: Sequence[Request_contra]) -> Cost:
        """Return the expected cost of requests, including expected repetitions."""
        ...

    def spent(
        self, requests: Sequence[Request_contra], answers: Sequence[Answer], *, again: bool
    ) -> UnitStats:
        """Return the actual cost of answers, and learn the expected cost from it."""
        ...

    def note_failures(self, answers: Sequence[Answer]) -> None:
        """Record the reasons of failed requests."""
        ...

    def remarks(self, answers: Sequence[Answer]) -> set[str]:
        """Return warnings about the answers, as sentences."""
        ...

    def name(self, request: Request_contra) -> str:
        """Return a name of the request that is unique within its unit."""
        ...

    def written(self, names: Sequence[str], answers: Sequence[Answer]) -> str | None:
        """Return answers as text to keep; None if they cost nothing."""
        ...

    def read(self, text: str) -> Mapping[str, Answer]:
        """Return the answers in a kept text, by the names of their requests."""
        ...
