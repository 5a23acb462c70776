"""Choosing what to refine: the promising candidate of each prompt (Section 3.2)."""

from collections.abc import Mapping, Sequence

from ...stores.records import SCORED, Candidate, Critique, Reward


def promising(
    candidates: Sequence[Candidate],
    rewards: Mapping[str, Reward],
    critiques: Mapping[str, Critique],
) -> list[Candidate]:
    """Return y~ = argmax r(x, y) for each prompt, in the order of the prompts' first candidates.

    Only whole answers with a critique to read take part. Where no reward model is configured the
    mean rating stands in for the reward. Ties go to the lower candidate id.
    """
    best: dict[str, tuple[tuple[float, float], Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.candidate_id):
        critique = critiques.get(candidate.candidate_id)
        if not candidate.usable or critique is None or critique.status != SCORED:
            continue
        worth = (_reward(rewards.get(candidate.candidate_id)), _mean_rating(critique))
        if candidate.prompt_id not in best or worth > best[candidate.prompt_id][0]:
            best[candidate.prompt_id] = (worth, candidate)
    order = dict.fromkeys(c.prompt_id for c in candidates)
    return [best[prompt_id][1] for prompt_id in order if prompt_id in best]


def _reward(reward: Reward | None) -> float:
    return float("-inf") if reward is None or reward.score is None else reward.score


def _mean_rating(critique: Critique) -> float:
    ratings = [a.rating for a in critique.aspects if a.rating is not None]
    return sum(ratings) / len(ratings) if ratings else float("-inf")
