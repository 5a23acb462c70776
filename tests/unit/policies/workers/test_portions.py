"""Of many replicas that share a stream, the one with the least to do is found at once."""

import random
from dataclasses import dataclass

from lpfloop.policies.workers.portions import Portion, Portions

WINDOW = 5


@dataclass(frozen=True)
class Item:
    """As much of a batch as portions look at."""

    key: str
    requests: tuple[int, ...]


def least(portions: Portions[str, Item]) -> int | None:
    """Return what the least busy replica with room has outstanding, by looking at all of them."""
    counts = [sum(len(item.requests) for item in p.away.values()) for p in portions]
    room = [n for n, p in zip(counts, portions, strict=True) if n < p.window]
    return min(room, default=None)


def test_the_least_busy_replica_is_next() -> None:
    for seed in range(5):
        share_out(seed)


def share_out(seed: int) -> None:
    draw = random.Random(seed)
    portions = Portions[str, Item]()
    for number in range(8):
        portions.join(number, f"seat {number}")
    held: dict[str, Portion[str, Item]] = {}
    for step in range(200):
        loading = [p for p in portions if not p.window]
        hungry = portions.hungry()
        assert (hungry and hungry.outstanding) == least(portions)
        assert portions.in_flight == bool(held)
        assert portions.loading == bool(loading)
        chance = draw.random()
        if loading and chance < 0.1:
            portions.loaded(loading[0], draw.randint(1, WINDOW))
        elif hungry and chance < 0.6:
            item = Item(str(step), tuple(range(draw.randint(1, 4))))
            portions.give(hungry, item)
            held[item.key] = hungry
            assert portions.holds(item.key)
        elif held and chance < 0.95:
            key = draw.choice([*held])
            portions.came(held.pop(key), key)
            assert not portions.holds(key)
        else:
            gone = draw.choice([*portions])
            back = [item.key for item in portions.leave(gone)]
            assert back == [key for key, portion in held.items() if portion is gone]
            for key in back:
                del held[key]
            portions.join(gone.number, gone.seat)
