"""Fetching several things concurrently, in their order, with a bound on those held in memory.

Each request to a bucket takes a while, however small the object is: one after the other, thousands
of files would take minutes.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 16
AHEAD_BYTES = 128 * 2**20
"""The most bytes that are fetched and not yet yielded, unless a single thing is larger."""

T = TypeVar("T")
R = TypeVar("R")


def read_ahead(
    fetch: Callable[[T], R], things: Iterable[T], size: Callable[[T], int]
) -> Generator[R]:
    """Yield the results of `fetch` for things of `size` bytes; an error comes in order.

    When the reader stops, the remaining requests are cancelled.
    """
    waiting = deque[tuple[Future[R], int]]()
    ahead = 0
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for thing in things:
            while waiting and (len(waiting) == AT_ONCE or ahead + size(thing) > AHEAD_BYTES):
                fetched, bytes_ = waiting.popleft()
                yield fetched.result()
                ahead -= bytes_
            waiting.append((pool.submit(fetch, thing), size(thing)))
            ahead += size(thing)
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)
