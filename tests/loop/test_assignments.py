"""Assignments meet the overlap that was asked for, and never give a person an item twice."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.assignments import Overlap, Taken, next_place


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
def test_everybody_together_meets_the_overlap_and_nobody_gets_an_item_twice(items, overlap, begun):
    table = Table(items, overlap)
    for person, skips in begun:
        table.turn(person, skips=skips)
    while any([table.turn(person, skips=False) is not None for person in "abcdefgh"]):  # noqa: C419
        pass
    assert max(Counter(table.given).values(), default=1) == 1
    # Four of the eight skip nothing, so each item finds as many judges as it needs.
    assert {p: len(table.holders[p]) for p in range(items)} == {
        place: overlap.judges(place) for place in range(items)
    }


@given(items=st.integers(0, 200), overlap=overlaps)
def test_the_share_that_several_judge_is_met_in_every_beginning_of_the_queue(items, overlap):
    several = [overlap.judges(place) > 1 for place in range(items)]
    for end in range(items + 1):
        assert abs(sum(several[:end]) - end * overlap.share) < 1
    assert overlap.wanted(items) == items + sum(several) * (overlap.people - 1)


def test_what_others_have_begun_comes_first():
    table = Table(10, Overlap(share=0.5, people=2))
    assert [table.turn("ada", skips=False) for _ in range(4)] == [0, 1, 2, 3]
    # Every second item is judged by two, so Bo begins with those that Ada has judged.
    assert [table.turn("bo", skips=False) for _ in range(4)] == [1, 3, 4, 5]
    assert table.turn("ada", skips=False) == 5


def test_what_one_person_skips_goes_to_the_next():
    table = Table(2, Overlap(share=0, people=2))
    assert table.turn("ada", skips=True) == 0
    assert [table.turn("ada", skips=False) for _ in range(2)] == [1, None]
    assert table.turn("bo", skips=False) == 0
