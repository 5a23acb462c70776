"""How far people agree, by hand-computed values."""

from dataclasses import replace

import pytest
from rows import CRITIQUE, PREFERENCE

from lpfloop.loop.evaluation.people_agreement import people_agreement
from lpfloop.stores.records import AspectRating


def rated(who, answer, rating):
    aspect = AspectRating(name="Facts", rating=rating, comment="")
    return replace(CRITIQUE, critic=who, candidate_id=answer, aspects=(aspect,))


def voted(who, first, second, preferred):
    return replace(PREFERENCE, annotator=who, first_id=first, second_id=second, preferred=preferred)


ROWS = [
    rated("human:a", "x", -1),
    rated("human:a", "x", 1),
    rated("human:b", "x", 1),
    rated("human:a", "y", -1),
    rated("human:b", "y", 1),
    rated("human:b", "z", 0),
]


def test_agreement_of_two_and_of_three():
    found = people_agreement(ROWS)
    assert (found.people, found.units, found.agreement) == (("human:a", "human:b"), 2, 0.5)
    assert found.kappa == pytest.approx(0.0)
    votes = [
        voted("human:a", "x", "y", "first"),
        voted("human:b", "y", "x", "second"),
        voted("human:c", "x", "y", "tie"),
    ]
    assert people_agreement(votes).agreement == pytest.approx(1 / 3)
    assert people_agreement(votes[:1]).kappa is None
