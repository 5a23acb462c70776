"""The promising candidate, with the highest reward among whole, judged answers; its refinements."""

from dataclasses import replace

from rows import CANDIDATE, CRITIQUE, REWARD

from lpfloop.loop.stages.refine import promising
from lpfloop.stores.records import AspectRating


def candidate(number, **changes):
    return replace(CANDIDATE, candidate_id=f"cand-{number}", **changes)


def rewarded(**scores):
    return {k: replace(REWARD, candidate_id=k, score=v) for k, v in scores.items()}


def judged(*candidates, rating=1, status="scored"):
    aspects = (AspectRating(name="Readability", rating=rating, comment=""),)
    return {
        c.candidate_id: replace(
            CRITIQUE, candidate_id=c.candidate_id, aspects=aspects, status=status
        )
        for c in candidates
    }


def test_highest_reward_wins():
    a, b = candidate(1), candidate(2)
    critiques = judged(a, rating=1) | judged(b, rating=-1)
    rewards = {"cand-1": 0.1, "cand-2": 0.9}
    assert promising([a, b], rewarded(**rewards), critiques) == [b]


def test_unusable_candidates_excluded():
    cut = candidate(1, finish_reason="length")
    empty = candidate(2, text=" ")
    unread = candidate(3)
    critiques = judged(cut, empty) | judged(unread, status="no_dictionary")
    rewards = rewarded(**{"cand-1": 1.0, "cand-2": 1.0, "cand-3": 1.0})
    assert promising([cut, empty, unread], rewards, critiques) == []


def test_mean_rating_without_rewards():
    a, b = candidate(1), candidate(2)
    critiques = judged(a, rating=-1) | judged(b, rating=0)
    assert promising([a, b], {}, critiques) == [b]
