"""What a cut answer is worth beside finished ones. Imports no model library.

The scores of a Bradley-Terry reward model have no zero: where most lie below a penalty that is a
number, being cut off pays. The rule `below` is relative to the answers that it is applied to, all
at once: those of a step, whatever the number of devices, or one prompt's, of which the best is
taken. No cut answer is then worth as much as any that ended.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from ...configs.methods import MissingEnd

MARGIN = 1.0
"""Standard deviations by which a cut answer is below the rest, where nothing else is said."""


def ruled(
    rewards: Sequence[float], ended: Sequence[bool], rule: MissingEnd, penalty: float = MARGIN
) -> list[float]:
    """Return the rewards of answers after the rule for those that were cut off.

    With `below` these get the lowest reward of an answer that ended, less `penalty` standard
    deviations of such answers' rewards. If not one ended, all stay as they are: none is better for
    having ended.
    """
    level = _below(rewards, ended, penalty) if rule == "below" else None
    return [
        reward if whole else _cut(reward, rule, penalty, level)
        for reward, whole in zip(rewards, ended, strict=True)
    ]


def _cut(reward: float, rule: MissingEnd, penalty: float, level: float | None) -> float:
    """Return the reward of a cut answer."""
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
    """Return the reward of all cut answers by the rule `below`; None if not one ended."""
    finished = [reward for reward, whole in zip(rewards, ended, strict=True) if whole]
    if not finished:
        return None
    # One finished answer, or equal ones, have no spread: that of all, or 1, stands in for it.
    spread = pstdev(finished) or pstdev(rewards) or 1.0
    lowest = min(finished)
    return min(lowest - penalty * spread, math.nextafter(lowest, -math.inf))


def cut_metrics(rewards: Sequence[float], ended: Sequence[bool]) -> Mapping[str, float]:
    """Return how many of a step's answers were cut off, and what they got after the rule.

    `above_mean` is the share of them with a reward above the mean of all.
    """
    cut = [reward for reward, whole in zip(rewards, ended, strict=True) if not whole]
    told = {"missing_eos/count": float(len(cut))}
    if not cut:
        return told
    mean = fmean(rewards)
    above = fmean(reward > mean for reward in cut)
    return told | {"missing_eos/reward": fmean(cut), "missing_eos/above_mean": above}
