"""People's quality: pace, agreement with others and with the verifier, by hand-computed values."""

from dataclasses import replace

import pytest
from rows import CRITIQUE, PREFERENCE

from lpfloop.loop.evaluation.annotator_quality import annotator_quality, people_agreement
from lpfloop.stores.records import AspectRating


def rated(who, answer, rating, seconds=None):
    aspect = AspectRating(name="Facts", rating=rating, comment="")
    return replace(
        CRITIQUE, critic=who, candidate_id=answer, aspects=(aspect,), judged_seconds=seconds
    )


def voted(who, first, second, preferred):
    return replace(PREFERENCE, annotator=who, first_id=first, second_id=second, preferred=preferred)


ROWS = [
    rated("human:a", "x", -1),
    rated("human:a", "x", 1, 10.0),
    rated("human:b", "x", 1, 30.0),
    rated("human:a", "y", -1, 20.0),
    rated("human:b", "y", 1),
    rated("human:b", "z", 0),
]


def test_the_last_judgement_counts():
    a, b = annotator_quality(ROWS, {"x": True, "y": True})
    assert (a["judged"], a["seconds"], a["shared"], a["others"]) == (2, 15.0, 2, 0.5)
    assert (a["verified"], a["verifier"], b["verifier"]) == (2, 0.5, 1.0)


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
