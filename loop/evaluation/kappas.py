"""Agreement beyond chance: Cohen's kappa of two annotators, Fleiss' of many.

Both are (observed - expected) / (1 - expected), in which the expected agreement is between
annotators who give each label as often as these do, regardless of the pair. A kappa is a function
of sums over pairs. It is undefined if all verdicts are the same.
"""

import numpy as np

from ..lake.statistics.clustered_estimates import Numbers, OfSums, quotient
from .judge_statistics import Counts


def cohen(counts: Counts | Numbers, shares: Numbers) -> OfSums:
    """Return Cohen's kappa between verdicts and the labels of a second annotator.

    Args:
        counts: How often each label was given on each pair.
        shares: How likely each label is by the second annotator; rows without one are zero.
    """
    present = shares.sum(axis=1) > 0
    given = np.where(present[:, None], counts, 0)
    confusion = given[:, :, None] * shares[:, None, :]
    return OfSums(
        columns=confusion.reshape(len(counts), -1),
        value=_cohen,
        counted=given.sum(axis=1).astype(float),
    )


def _cohen(sums: Numbers) -> Numbers:
    size = round(sums.shape[-1] ** 0.5)
    total = sums.sum(axis=-1)
    confusion = quotient(sums, np.broadcast_to(total[..., None], sums.shape))
    table = confusion.reshape(*sums.shape[:-1], size, size)
    observed = np.trace(table, axis1=-2, axis2=-1)
    return _kappa(observed, (table.sum(axis=-1) * table.sum(axis=-2)).sum(axis=-1))


def fleiss(counts: Counts) -> OfSums:
    """Return Fleiss' kappa among the verdicts on each pair that has several of them.

    Fleiss (1971) assumes equally many verdicts on each pair. If their numbers differ, pairs count
    evenly for the observed agreement, and verdicts for how often each label is given.
    """
    total = counts.sum(axis=1)
    several = total > 1
    given = np.where(several[:, None], counts, 0)
    same = (given * (given - 1)).sum(axis=1)
    agreed = np.divide(same, total * (total - 1), out=np.zeros(len(counts)), where=several)
    there = several.astype(float)
    return OfSums(columns=np.column_stack([agreed, there, given]), value=_fleiss, counted=there)


def _fleiss(sums: Numbers) -> Numbers:
    given = sums[..., 2:]
    shares = quotient(given, np.broadcast_to(given.sum(axis=-1)[..., None], given.shape))
    return _kappa(quotient(sums[..., 0], sums[..., 1]), (shares**2).sum(axis=-1))


def _kappa(observed: Numbers, expected: Numbers) -> Numbers:
    # All verdicts alike: chance explains everything, up to rounding.
    by_chance = np.where(expected > 1 - 1e-12, 1.0, expected)
    return quotient(np.asarray(observed - by_chance), np.asarray(1 - by_chance))
