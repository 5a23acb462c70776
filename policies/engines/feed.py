"""A queue of batches that can tell without blocking whether the next one has arrived.

An engine that steps many requests at once must not stall while its caller prepares the next batch:
it takes what has arrived and goes on. Any other iterable counts as always ready.
"""

import queue
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")

POLL_S = 0.02
"""Seconds between looks at a source that has nothing yet."""


@runtime_checkable
class Pollable(Protocol):
    """An iterator that knows whether its next item is there."""

    def ready(self) -> bool:
        """Whether `next` would return (or stop) without waiting."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """An iterator whose owner may be asked to stop."""

    @property
    def stopping(self) -> bool:
        """Whether no item follows, and only requests under way are worth waiting for."""
        ...


def is_stopping(items: Iterable[object]) -> bool:
    """Whether the owner of `items` was asked to stop; never said of other iterables."""
    return isinstance(items, Stoppable) and items.stopping


def arrived(items: Iterable[object]) -> bool:
    """Whether the next item of `items` can be taken without waiting; assumed of other iterables."""
    return items.ready() if isinstance(items, Pollable) else True


class Feed(Generic[T]):
    """Items put by one thread and taken by another; iteration ends after `finish` or `cancel`."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._ended = False
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.put(item)

    def finish(self) -> None:
        """Mark the end: no item follows."""
        self._items.put(None)

    def cancel(self) -> None:
        """Drop what is queued: the results are no longer wanted."""
        self._cancelled = True
        self._items.put(None)

    def ready(self) -> bool:
        """Whether `next` would return (or stop) without waiting."""
        return self._ended or not self._items.empty()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = None if self._ended or self._cancelled else self._items.get()
        if item is None or self._cancelled:
            self._ended = True
            raise StopIteration
        return item


def is_cancelled(items: object) -> bool:
    """Whether the results of `items` are no longer wanted; never said of other iterables."""
    return isinstance(items, Feed) and items.cancelled
