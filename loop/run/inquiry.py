"""What a model is asked and may be asked again, and the line on which the requests go out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from ...stores.journal_reader import Cost
from .reporter import Advance

Request_co = TypeVar("Request_co", covariant=True)
Answer_contra = TypeVar("Answer_contra", contravariant=True)
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer = TypeVar("Answer")
Travelling = TypeVar("Travelling")


class Inquiry(Protocol[Request_co, Answer_contra]):
    """Something to be asked of a model, with what its latest answer said: a value."""

    @property
    def settled(self) -> bool:
        """Whether nothing is to be asked any more: it was answered, or used up its attempts."""
        ...

    @property
    def attempts(self) -> int:
        """How many answers it had; above 0, it is asked again."""
        ...

    def request(self) -> Request_co:
        """Return its next request, under a seed of its own."""
        ...

    def heard(self, answer: Answer_contra) -> Sequence[Self]:
        """Return what an answer makes of it: one inquiry, or parts that are asked separately."""
        ...


class ModelLine(Protocol[Request_contra, Answer, Travelling]):
    """Where requests go: how they travel, what they can cost, what they did cost."""

    @property
    def judge(self) -> bool:
        """Whether the requests count as judge calls."""
        ...

    def batch(self, key: str, requests: Sequence[Request_contra], *, again: bool) -> Travelling:
        """Return requests as they travel; `again` if they are not asked for the first time."""
        ...

    def stream(self, batches: Iterable[Travelling]) -> Iterator[tuple[str, Sequence[Answer]]]:
        """Give the answers to each batch under its key, in the order of its requests."""
        ...

    def most(self, requests: Sequence[Request_contra]) -> Cost:
        """Return what requests can cost at most, each asked once."""
        ...

    def expected(self, requests: Sequence[Request_contra]) -> Cost:
        """Return what requests are expected to cost, with those that will be asked again."""
        ...

    def spent(
        self, requests: Sequence[Request_contra], answers: Sequence[Answer], *, again: bool
    ) -> Advance:
        """Return what answers to requests did cost, and learn from it what to expect."""
        ...

    def note_failures(self, answers: Sequence[Answer]) -> None:
        """Note why requests could not be answered."""
        ...

    def remarks(self, answers: Sequence[Answer]) -> set[str]:
        """Return what was odd about answers, in sentences."""
        ...

    def name(self, request: Request_contra) -> str:
        """Return what tells a request from every other one of its unit."""
        ...

    def written(self, names: Sequence[str], answers: Sequence[Answer]) -> str | None:
        """Return answers as text to keep; None if they cost nothing that is worth keeping."""
        ...

    def read(self, text: str) -> Mapping[str, Answer]:
        """Return the answers in a kept text, by the names of their requests."""
        ...
