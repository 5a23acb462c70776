"""Processor time in a unit that this machine gives, beside the work itself: never in seconds.

A loaded machine slows work and yardstick alike, so that a bound holds there as well. A bound
stands far above what the work takes, and far below what a quadratic algorithm would take.
"""

import time
from collections.abc import Callable

STEPS = 20_000
"""Steps of the yardstick, a loop in plain Python: a millisecond or two."""
ATTEMPTS = 5


def effort(work: Callable[[], object]) -> float:
    """Return how many times as long as the yardstick some work takes, of processor time."""
    before = _yardstick()
    spent = _spent(work)
    return 2 * spent / (before + _yardstick())


def least_effort(work: Callable[[], object], bound: float) -> float:
    """Return the first effort within a bound, of a few attempts; else the least of them."""
    found: list[float] = []
    while not found or (found[-1] > bound and len(found) < ATTEMPTS):
        found.append(effort(work))
    return min(found)


def _yardstick() -> float:
    def steps() -> int:
        total = 0
        for step in range(STEPS):
            total += step & 7
        return total

    return max(_spent(steps), 1e-6)


def _spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
