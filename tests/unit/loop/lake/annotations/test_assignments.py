"""Assignments have the requested overlap, and never give a person an item twice."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.lake.annotations.judging_queue import Overlap, Taken, next_place


class Table:
    """People who take items from one queue, judge most of them and skip some."""

    def __init__(self, items: int, overlap: Overlap) -> None:
        self.items, self.overlap = items, overlap
        self.holders = defaultdict[int, set[str]](set)
        self.seen = defaultdict[str, set[int]](set)
        self.given = list[tuple[str, int]]()

    def turn(self, person: str, *, skips: bool) -> int | None:
        taken = Taken(holders=self.holders, seen=self.seen[person])
        place = next_place(self.items, self.overlap, taken)
        if place is None:
            return None
        self.given.append((person, place))
        self.seen[person].add(place)
        if not skips:
            self.holders[place].add(person)
        return place


turns = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60)
overlaps = st.builds(Overlap, share=st.floats(0, 1), people=st.integers(2, 4))


@given(items=st.integers(0, 25), overlap=overlaps, begun=turns)
def test_overlap_met_and_no_item_twice(items, overlap, begun):
    table = Table(items, overlap)
    for person, skips in begun:
        table.turn(person, skips=skips)
    while any([table.turn(person, skips=False) is not None for person in "abcdefgh"]):  # noqa: C419
        pass
    assert max(Counter(table.given).values(), default=1) == 1
    # Four of the eight skip nothing, so each item gets enough judges.
    assert {p: len(table.holders[p]) for p in range(items)} == {
        place: overlap.judges(place) for place in range(items)
    }
