"""Batches that arrive while an engine works: it can ask without blocking whether one is there.

An engine that steps many requests at once must not wait while its caller prepares the next batch:
it takes what has arrived and goes on. Every iterable that is no `Source` counts as ready.
"""

import queue
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02
"""Seconds between looks at a source that has nothing yet."""


class Source(Iterator[T]):
    """An iterator whose items arrive one after another; `cancelled`: nobody wants the results."""

    cancelled: bool = False

    @property
    def stopping(self) -> bool:
        """Whether no item follows, and retries are not worth waiting for."""
        return False

    def ready(self) -> bool:
        """Whether `next` would return (or stop) without waiting."""
        return True


def arrived(items: Iterable[object]) -> bool:
    """Whether the next item can be taken without waiting."""
    return not isinstance(items, Source) or items.ready()


def is_stopping(items: Iterable[object]) -> bool:
    """Whether the source was asked to stop."""
    return isinstance(items, Source) and items.stopping


def is_cancelled(items: Iterable[object]) -> bool:
    """Whether nobody wants the results any more."""
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
        """Drop what is queued, as nobody wants the results."""
        self.cancelled = True
        self._items.put(None)

    def ready(self) -> bool:
        """Whether `next` would return (or stop) without waiting."""
        return self._ended or not self._items.empty()

    def __next__(self) -> T:
        item = None if self._ended or self.cancelled else self._items.get()
        if item is None or self.cancelled:
            self._ended = True
            raise StopIteration
        return item
