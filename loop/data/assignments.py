"""The next item for a judging person: a queue's order, in which several people judge some items.

Several people judge a share of the items, so that their agreement can be measured. These come
first: begun items are finished before new ones are begun. Nobody gets an item twice.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """`share` of the items, evenly spread over the queue, are judged by `people` people each."""

    share: float
    people: int

    def judges(self, place: int) -> int:
        """Return how many people shall judge the item at a place, counted from 0."""
        begun, ended = place * self.share, (place + 1) * self.share
        several = math.floor(ended + ROUNDING) > math.floor(begun + ROUNDING)
        return self.people if several else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The taken items of a queue: the people at each place, and the places that one person saw.

    A person who skipped an item does not hold it, but has seen it.
    """

    holders: Mapping[int, Collection[str]]
    seen: Collection[int]


def next_place(items: int, overlap: Overlap, taken: Taken) -> int | None:
    """Return the place of the next item for a person, or None if nothing is left for them."""
    fresh = None
    for place in range(items):
        if place in taken.seen:
            continue
        held = len(taken.holders.get(place, ()))
        if 0 < held < overlap.judges(place):
            return place
        if not held and fresh is None:
            fresh = place
    return fresh
