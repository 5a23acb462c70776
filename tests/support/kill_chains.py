"""Where the crash tests kill a run, and which of these kills one run suffers one after another."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 5
"""So many kills one run suffers at most before it is finished and compared."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A meeting with a failpoint: how many were before it in a course of work, and its name."""

    position: int
    name: str


def places(course: Sequence[str], names: Sequence[str], *, first_only: bool = False) -> list[Place]:
    """Return where to kill a course of work: at which of its meetings with these failpoints."""
    meetings = defaultdict[str, list[int]](list)
    for position, name in enumerate(course):
        meetings[name].append(position)
    return [
        Place(meetings[name][nth - 1], name)
        for name in names
        if name in meetings
        for nth in ([1] if first_only else _times(len(meetings[name])))
    ]


def _times(count: int) -> list[int]:
    """Return which of `count` meetings to fail at: the first two, the middle one, the last."""
    return sorted({1, min(2, count), (count + 1) // 2, count})


def chains(wanted: Sequence[Place]) -> list[list[Place]]:
    """Deal places into chains, each of which goes through the whole course of the work."""
    ordered = sorted(wanted)
    number = -(-len(ordered) // LONGEST)
    return [ordered[first::number] for first in range(number)]


def meeting(course: Sequence[str], place: Place, *, after: int) -> int:
    """Return the how-many-th meeting a place is, for work that was killed at position `after`.

    What is resumed meets some failpoints again, so that it may be killed a little earlier.
    """
    return course[after : place.position + 1].count(place.name)


def earlier(course: Sequence[str], place: Place) -> Place | None:
    """Return the last meeting with the same failpoint before this one, if there is one."""
    before = [n for n in range(place.position) if course[n] == place.name]
    return Place(before[-1], place.name) if before else None
