"""What each replica has of a stream that several share, and which has the least to do.

A pool may have a thousand members: handing out an item and taking its result look at one of them,
not at all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..engines.feed import Feed
from .work import In

S = TypeVar("S")


@dataclass(kw_only=True, eq=False)
class Portion(Generic[S, In]):
    """What the replica in one seat has of a stream; a `window` of 0 says that it still loads.

    `outstanding` counts the requests that it has been handed and that are not answered. One that
    is `leaving` is handed nothing more.
    """

    number: int
    seat: S
    feed: Feed[In] = field(default_factory=Feed[In])
    away: dict[str, In] = field(default_factory=dict[str, In])
    window: int = 0
    outstanding: int = 0
    leaving: bool = False


class Portions(Generic[S, In]):
    """The portions of a stream. Those with room are kept by what they have outstanding."""

    def __init__(self) -> None:
        self._of: dict[int, Portion[S, In]] = {}
        self._room: dict[int, dict[int, Portion[S, In]]] = {}
        self._keys = set[str]()
        self._loading = 0

    def __iter__(self) -> Iterator[Portion[S, In]]:
        return iter(self._of.values())

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def in_flight(self) -> bool:
        """Whether an item is with a replica."""
        return bool(self._keys)

    @property
    def loading(self) -> bool:
        """Whether a replica still loads."""
        return self._loading > 0

    def join(self, number: int, seat: S) -> Portion[S, In]:
        """Return the empty portion of a seat."""
        portion = self._of[number] = Portion[S, In](number=number, seat=seat)
        self._loading += 1
        return portion

    def loaded(self, portion: Portion[S, In], window: int) -> None:
        """Note that a replica can work, and wants that many requests ahead."""
        portion.window = window
        self._loading -= 1
        self._offer(portion)

    def hungry(self) -> Portion[S, In] | None:
        """Return the portion of the replica with the least to do, if one has room."""
        return next(iter(self._room[min(self._room)].values())) if self._room else None

    def holds(self, key: str) -> bool:
        """Whether an item of this key is with a replica."""
        return key in self._keys

    def give(self, portion: Portion[S, In], item: In) -> None:
        """Hand an item to a replica."""
        self._withdraw(portion)
        portion.away[item.key] = item
        portion.outstanding += len(item.requests)
        self._keys.add(item.key)
        self._offer(portion)
        portion.feed.put(item)

    def came(self, portion: Portion[S, In], key: str) -> None:
        """Note that an item came back answered."""
        self._withdraw(portion)
        item = portion.away.pop(key)
        portion.outstanding -= len(item.requests)
        self._keys.remove(key)
        self._offer(portion)

    def dismiss(self, portion: Portion[S, In]) -> None:
        """Hand a replica nothing more: it is to leave once it has answered what it has."""
        self._withdraw(portion)
        portion.leaving = True
        portion.feed.finish() if portion.away else portion.feed.cancel()

    def leave(self, portion: Portion[S, In]) -> Iterable[In]:
        """Take back everything from a replica that gave up, or left; return it in its order."""
        self._withdraw(portion)
        del self._of[portion.number]
        self._loading -= not portion.window
        self._keys.difference_update(portion.away)
        return portion.away.values()

    def _offer(self, portion: Portion[S, In]) -> None:
        """Keep a portion among those with room, if it has some."""
        if portion.outstanding < portion.window and not portion.leaving:
            self._room.setdefault(portion.outstanding, {})[portion.number] = portion

    def _withdraw(self, portion: Portion[S, In]) -> None:
        equals = self._room.get(portion.outstanding, {})
        if equals.pop(portion.number, None) is not None and not equals:
            del self._room[portion.outstanding]
