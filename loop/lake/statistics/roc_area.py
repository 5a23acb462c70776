"""How well a score separates right answers from wrong ones: the area under the ROC curve.

It is the probability that a right answer has the higher score than a wrong one, with equal scores
counted one half. It is undefined without a right or without a wrong answer. Its error is that of
DeLong et al. (1988), with the answers of a cluster summed up first (Obuchowski 1997).
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from .clustered_estimates import Estimate, Indices, Numbers, add_bounds, sum_by_cluster

Truths = NDArray[np.bool_]


def area(scores: Numbers, right: Truths) -> float | None:
    """Return the area under the ROC curve of some answers; None if a class is missing."""
    if right.all() or not right.any():
        return None
    return float(_placements(scores, right)[right].mean())


def area_estimate(scores: Numbers, right: Truths, clusters: Indices) -> Estimate | None:
    """Return the area with its interval; None if a class is missing."""
    value = area(scores, right)
    if value is None:
        return None
    shares = np.where(right, 1 / right.sum(), 1 / (~right).sum())
    apart = (_placements(scores, right) - value) * shares
    sums = sum_by_cluster(apart[:, None], clusters)
    there = len(np.unique(clusters))
    error = sqrt(float((sums**2).sum()) * there / (there - 1)) if there > 1 else None
    return add_bounds(value, error, len(scores), there, is_share=True)


def _placements(scores: Numbers, right: Truths) -> Numbers:
    """Return the share of the other class that each answer is ranked correctly against."""
    _, level = np.unique(scores, return_inverse=True)
    good, bad = (np.bincount(level, weights=which) for which in (right, ~right))
    beaten = (np.cumsum(bad) - bad / 2) / bad.sum()
    beating = 1 - (np.cumsum(good) - good / 2) / good.sum()
    return np.where(right, beaten[level], beating[level])
