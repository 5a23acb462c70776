"""From judged candidates to pairs (DPO) or demonstrations (rejection sampling): pure functions.

Rules. By critique (RLRF, Section 3.3), `success_vs_failure` for pairs and `success` for
demonstrations: positive is what has 1 on all rated aspects, negative what has any 0 or -1; the top
k positives by reward are each paired with a random negative. By reward alone (Section 4.1, the
baseline), `top_reward`: the top k against random others, no critique read.

Choices where the paper is silent. A candidate that is empty, truncated or, for the rule at hand,
not rated is on neither side. Negatives are drawn without replacement, so that there are at most as
many pairs as negatives. A text never stands on both sides of a pair, no two pairs of a prompt have
the same two texts, and no two demonstrations the same text; texts that differ in white space alone
count as the same.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ..stores.keys import derive_seed, row_id
from ..stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    Prompt,
    Reward,
    Yield,
)

Rule = Literal["success_vs_failure", "success", "top_reward"]


class Outcome(StrEnum):
    """What pairing made of a prompt."""

    PAIRED = "paired"
    """At least one pair."""
    DEMONSTRATED = "demonstrated"
    """At least one demonstration."""
    NO_CANDIDATES = "no_candidates"
    """The prompt has no candidates."""
    NONE_USABLE = "none_usable"
    """Every candidate is empty or truncated."""
    NONE_RATED = "none_rated"
    """No usable candidate has the critique, or the reward, that the rule reads."""
    NO_POSITIVE = "no_positive"
    """No rated candidate is positive."""
    NO_NEGATIVE = "no_negative"
    """There are positives, and nothing to set against them."""
    ALL_IDENTICAL = "all_identical"
    """There are both, but all with the same text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate with what is known about it."""

    candidate: Candidate
    critique: Critique | None = None
    reward: Reward | None = None

    @property
    def score(self) -> float | None:
        """The reward, if it was scored."""
        return None if self.reward is None else self.reward.score

    @property
    def ratings(self) -> tuple[int, ...]:
        """The ratings of the critique, in its order; empty if it is unscored."""
        aspects = () if self.critique is None else self.critique.aspects
        return tuple(aspect.rating for aspect in aspects if aspect.rating is not None)

    @property
    def text(self) -> str:
        """The text as compared with others: white space normalised."""
        return " ".join(self.candidate.text.split())


@dataclass(frozen=True, slots=True)
class _Sides:
    """The positives, best first, and the negatives in a fixed order; or the reason for none."""

    positives: tuple[Judged, ...]
    negatives: tuple[Judged, ...]
    lack: Outcome | None


def pair(
    rule: Rule,
    prompt: Prompt,
    judged: Sequence[Judged],
    *,
    top_k: int,
    root_seed: int,
    iteration: int,
) -> tuple[list[Pair], Yield]:
    """Pair one prompt's candidates by `rule`; the order of `judged` does not matter."""
    sides = SIDES[rule](judged, top_k)
    if sides.lack is None and not sides.negatives:
        sides = _Sides((), (), Outcome.NO_NEGATIVE)
    drawn = random.Random(derive_seed(root_seed, "pair", iteration, rule, prompt.prompt_id))
    negatives = drawn.sample(sides.negatives, len(sides.negatives))
    pairs = [
        _pair_row(rule, prompt, iteration, rank, chosen, rejected)
        for rank, (chosen, rejected) in enumerate(_matched(sides.positives, negatives))
    ]
    outcome = Outcome.PAIRED if pairs else sides.lack or Outcome.ALL_IDENTICAL
    return pairs, _yield(rule, prompt, iteration, outcome, len(pairs))


def demonstrate(
    rule: Rule, prompt: Prompt, judged: Sequence[Judged], *, top_k: int, iteration: int
) -> tuple[list[Demonstration], Yield]:
    """Return the top k positives of distinct texts as demonstrations; the order does not matter."""
    sides = SIDES[rule](_distinct(judged), top_k)
    rows = [
        _demonstration_row(rule, prompt, iteration, rank, chosen)
        for rank, chosen in enumerate(sides.positives)
    ]
    outcome = sides.lack or Outcome.DEMONSTRATED
    return rows, _yield(rule, prompt, iteration, outcome, len(rows))


def _by_critique(judged: Sequence[Judged], top_k: int) -> _Sides:
    """Split by critique: all aspects 1, or any 0 or -1; the top k positives by reward."""
    usable = [j for j in judged if j.candidate.usable]
    rated = [(j, j.critique) for j in usable if j.critique is not None]
    positives = [j for j, critique in rated if critique.positive]
    negatives = [j for j, critique in rated if critique.negative]
    lack = _lack(judged, usable, [*positives, *negatives], positives)
    return _Sides(_ranked(positives)[:top_k], _ranked(negatives), lack)


def _by_reward(judged: Sequence[Judged], top_k: int) -> _Sides:
    """Split by reward: the top k, and the rest."""
    usable = [j for j in judged if j.candidate.usable]
    ranked = _ranked([j for j in usable if j.score is not None])
    positives = ranked[:top_k]
    return _Sides(positives, ranked[top_k:], _lack(judged, usable, ranked, positives))


SIDES: dict[Rule, Callable[[Sequence[Judged], int], _Sides]] = {
    "success_vs_failure": _by_critique,
    "success": _by_critique,
    "top_reward": _by_reward,
}


def _lack(
    judged: Sequence[Judged],
    usable: Sequence[Judged],
    rated: Sequence[Judged],
    positives: Sequence[Judged],
) -> Outcome | None:
    if not judged:
        return Outcome.NO_CANDIDATES
    if not usable:
        return Outcome.NONE_USABLE
    if not rated:
        return Outcome.NONE_RATED
    return None if positives else Outcome.NO_POSITIVE


def _ranked(judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """Sort by reward, best first; those without a reward last; ties by id."""
    return tuple(sorted(judged, key=_rank))


def _rank(judged: Judged) -> tuple[bool, float, str]:
    score = judged.score
    return score is None, 0.0 if score is None else -score, judged.candidate.candidate_id


def _distinct(judged: Sequence[Judged]) -> list[Judged]:
    """Keep of each text the candidate that ranks first.

    Of a text that was judged twice in different ways, that is the one with the higher reward.
    """
    first: dict[str, Judged] = {}
    for one in _ranked(judged):
        first.setdefault(one.text, one)
    return list(first.values())


def _matched(
    positives: Sequence[Judged], negatives: Sequence[Judged]
) -> list[tuple[Judged, Judged]]:
    """Give each positive, best first, the next negative that makes a pair of texts not yet made."""
    left = list(negatives)
    made: set[tuple[str, str]] = set()
    matched: list[tuple[Judged, Judged]] = []
    for chosen in positives:
        for rejected in left:
            texts = (chosen.text, rejected.text)
            if chosen.text != rejected.text and texts not in made:
                made.add(texts)
                matched.append((chosen, rejected))
                left.remove(rejected)
                break
    return matched


def _yield(rule: Rule, prompt: Prompt, iteration: int, outcome: Outcome, made: int) -> Yield:
    return Yield(
        prompt_id=prompt.prompt_id,
        iteration=iteration,
        rule=rule,
        outcome=outcome.value,
        made=made,
    )


def _pair_row(
    rule: Rule, prompt: Prompt, iteration: int, rank: int, chosen: Judged, rejected: Judged
) -> Pair:
    ids = (chosen.candidate.candidate_id, rejected.candidate.candidate_id)
    return Pair(
        pair_id=row_id("pair", [rule, iteration, prompt.prompt_id, *ids]),
        prompt_id=prompt.prompt_id,
        iteration=iteration,
        chosen_id=ids[0],
        rejected_id=ids[1],
        rule=rule,
        rank=rank,
        chosen_ratings=chosen.ratings,
        rejected_ratings=rejected.ratings,
        chosen_reward=chosen.score,
        rejected_reward=rejected.score,
        prompt=prompt.messages,
        chosen=_assistant(chosen),
        rejected=_assistant(rejected),
    )


def _demonstration_row(
    rule: Rule, prompt: Prompt, iteration: int, rank: int, chosen: Judged
) -> Demonstration:
    candidate_id = chosen.candidate.candidate_id
    return Demonstration(
        demonstration_id=row_id("demo", [rule, iteration, prompt.prompt_id, candidate_id]),
        prompt_id=prompt.prompt_id,
        iteration=iteration,
        candidate_id=candidate_id,
        rule=rule,
        rank=rank,
        ratings=chosen.ratings,
        reward=chosen.score,
        prompt=prompt.messages,
        completion=_assistant(chosen),
    )


def _assistant(judged: Judged) -> tuple[Message, ...]:
    return (Message(role="assistant", content=judged.candidate.text),)
