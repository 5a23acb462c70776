"""A request that is sent once: a failed draw, or a text that is too long, would fail again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

S = TypeVar("S")
Sent = TypeVar("Sent")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRequest(Generic[S, Sent, Answer]):
    """A subject, the request about it, and the answer; without a request it is never sent."""

    subject: S
    sent: Sent | None
    answer: Answer | None = None
    attempts: int = 0

    @property
    def settled(self) -> bool:
        """Whether it was answered, or needs no answer."""
        return self.sent is None or self.attempts > 0

    def request(self) -> Sent:
        """Return the request."""
        if self.sent is None:
            raise ValueError("this subject has no request")
        return self.sent

    def after_answer(self, answer: Answer) -> Sequence[Self]:
        """Return it with its answer."""
        return [replace(self, answer=answer, attempts=1)]
