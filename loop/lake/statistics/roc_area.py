"""How well a score separates right answers from wrong ones: the area under the ROC curve.

It is the probability that a right answer has the higher score than a wrong one, with equal scores
counted one half. It is undefined without a right or without a wrong answer. Resamples are of
clusters.
"""

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Estimate, Indices, Numbers, interval, resamples

Truths = NDArray[np.bool_]


def area(scores: Numbers, right: Truths) -> float | None:
    """Return the area under the ROC curve of some answers; None if a class is missing."""
    if right.all() or not right.any():
        return None
    order, starts = _ranked(scores)
    held = right[order].astype(np.float64)[None, :]
    return float(_areas(held, 1 - held, starts)[0])


def area_estimate(
    scores: Numbers, right: Truths, clusters: Indices, *, draws: int, seed: int
) -> Estimate | None:
    """Return the area with its interval; None if a class is missing.

    Resamples without a right or without a wrong answer are left out, as their area is undefined.
    """
    value = area(scores, right)
    if value is None:
        return None
    order, starts = _ranked(scores)
    truths, places = right[order].astype(np.float64), clusters[order]
    found = list[Numbers]()
    for held in resamples(int(clusters.max()) + 1, draws=draws, seed=seed):
        weights = held[:, places].astype(np.float64)
        areas = _areas(weights * truths, weights * (1 - truths), starts)
        found.append(areas[~np.isnan(areas)])
    resampled, there = np.concatenate(found), len(np.unique(clusters))
    spread = interval(resampled) if there > 1 and len(resampled) > 1 else None
    return Estimate(
        value=value,
        low=spread and spread.low,
        high=spread and spread.high,
        n=len(scores),
        instructions=there,
    )


def _ranked(scores: Numbers) -> tuple[Indices, Indices]:
    """Return the order of the scores, and the index in it at which each distinct score begins."""
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    return order, np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))


def _areas(right: Numbers, wrong: Numbers, starts: Indices) -> Numbers:
    """Return the area for each row of weights of the ranked answers; NaN if a class is missing."""
    ahead = np.add.reduceat(right, starts, axis=1)
    behind = np.add.reduceat(wrong, starts, axis=1)
    below = np.cumsum(behind, axis=1) - behind
    pairs = ahead.sum(axis=1) * behind.sum(axis=1)
    won = (ahead * (below + behind / 2)).sum(axis=1)
    return np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
