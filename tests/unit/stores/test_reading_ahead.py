"""Reading a lake in a bucket takes few requests, few bytes and little waiting."""

import threading

import pytest

from lpfloop.stores import objects
from lpfloop.stores.objects import read_ahead

WAIT_S = 120.0
"""Timeout of a test whose reader requests too few files at a time."""


def test_read_ahead_in_order():
    second = threading.Event()

    def fetch(number: int) -> int:
        if number == 0:
            assert second.wait(WAIT_S), "the second is fetched beside the first"
        if number == 1:
            second.set()
        if number == 7:
            raise OSError("the seventh")
        return number

    given = list[int]()
    with pytest.raises(OSError, match="the seventh"):
        given.extend(read_ahead(fetch, range(20), size=lambda _: 1))
    assert given == list(range(7))
    given.clear()
    for number in (reader := read_ahead(fetch, range(20), size=lambda _: 1)):
        given.append(number)
        if number == 6:
            reader.close()
    assert given == list(range(7))


def test_read_ahead_within_memory(monkeypatch):
    monkeypatch.setattr(objects, "AHEAD_BYTES", 100)
    begun, taken, most = list[int](), 0, 0

    def fetch(size: int) -> int:
        nonlocal most
        begun.append(size)
        most = max(most, len(begun) - taken)
        return size

    for size in read_ahead(fetch, [30] * 20, int):
        assert size == 30
        taken += 1
    assert len(begun) == 20
    assert most <= 4
    large = [300, 300, 300]
    assert list(read_ahead(lambda n: n, large, int)) == large
