"""Batches that arrive while an engine works: it can take one without waiting for it.

An engine that works on many requests at once must not wait while its caller prepares the next
batch, which may need the answers to earlier ones: it takes the available batches and goes on. The
items of an iterator that is not a `Source` count as available.
"""

import queue
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02
"""Seconds between polls of a source without an item."""


class Source(Iterator[T]):
    """An iterator whose items arrive over time; `cancelled`: the results are not needed."""

    cancelled: bool = False

    @property
    def stopping(self) -> bool:
        """Whether no item follows, and retries are not worth waiting for."""
        return False

    def take(self) -> T | None:
        """Return the next item, or None if it has not arrived yet.

        Raises:
            StopIteration: if no item follows.
        """
        return next(self)


def take(items: Iterator[T], *, wait: bool) -> T | None:
    """Return the next item; without `wait`, None if the item has not arrived yet.

    Raises:
        StopIteration: if no item follows.
    """
    return items.take() if isinstance(items, Source) and not wait else next(items)


def is_stopping(items: Iterable[object]) -> bool:
    """Whether the source is stopping."""
    return isinstance(items, Source) and items.stopping


def is_cancelled(items: Iterable[object]) -> bool:
    """Whether the results are not needed any more."""
    return isinstance(items, Source) and items.cancelled


class Feed(Source[T]):
    """Items put by one thread and taken by another; iteration ends after `finish` or `cancel`."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._ended = False

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.put(item)

    def finish(self) -> None:
        """Mark the end: no item follows."""
        self._items.put(None)

    def cancel(self) -> None:
        """Drop the queued items, because the results are not needed."""
        self.cancelled = True
        self._items.put(None)

    def take(self) -> T | None:
        """Return the next item, or None if none has been put yet."""
        return next(self) if self._ended or not self._items.empty() else None

    def __next__(self) -> T:
        item = None if self._ended or self.cancelled else self._items.get()
        if item is None or self.cancelled:
            self._ended = True
            raise StopIteration
        return item
