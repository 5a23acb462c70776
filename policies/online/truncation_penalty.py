"""The reward of truncated answers, relative to complete ones. Needs no model library.

The scores of a Bradley-Terry reward model have no zero: if most are below a fixed penalty,
truncation pays. The rule `below` is relative to the answers that it is applied to: a step's, or the
candidates for one prompt of which the best is taken. No truncated answer then gets as much as any
complete one.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from ...configs.methods import MissingEnd

MARGIN = 1.0
"""The default distance of cut answers below the others, in standard deviations."""


def apply_rule(
    rewards: Sequence[float], ended: Sequence[bool], rule: MissingEnd, penalty: float = MARGIN
) -> list[float]:
    """Return the rewards of answers after the rule for truncated ones.

    With `below` these get the lowest reward of a complete answer, less `penalty` standard
    deviations of the complete answers' rewards. If no answer is complete, all rewards stay as they
    are.
    """
    level = _below(rewards, ended, penalty) if rule == "below" else None
    return [
        reward if whole else _cut(reward, rule, penalty, level)
        for reward, whole in zip(rewards, ended, strict=True)
    ]


def _cut(reward: float, rule: MissingEnd, penalty: float, level: float | None) -> float:
    match rule:
        case "none":
            return reward
        case "replace":
            return -penalty
        case "subtract":
            return reward - penalty
        case "below":
            return reward if level is None else level


def _below(rewards: Sequence[float], ended: Sequence[bool], penalty: float) -> float | None:
    """Return the reward of all cut answers by the rule `below`; None if no answer is complete."""
    finished = [reward for reward, whole in zip(rewards, ended, strict=True) if whole]
    if not finished:
        return None
    # One complete answer, or equal ones, have spread 0: use the spread of all answers, or 1.
    spread = pstdev(finished) or pstdev(rewards) or 1.0
    lowest = min(finished)
    return min(lowest - penalty * spread, math.nextafter(lowest, -math.inf))


def cut_metrics(rewards: Sequence[float], ended: Sequence[bool]) -> Mapping[str, float]:
    """Return how many of a step's answers were cut off, and their mean reward after the rule.

    `above_mean` is the share of them with a reward above the mean of all answers.
    """
    cut = [reward for reward, whole in zip(rewards, ended, strict=True) if not whole]
    counted = {"missing_eos/count": float(len(cut))}
    if not cut:
        return counted
    mean = fmean(rewards)
    above = fmean(reward > mean for reward in cut)
    return counted | {"missing_eos/reward": fmean(cut), "missing_eos/above_mean": above}
