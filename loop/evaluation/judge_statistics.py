"""Measures of a judge: pure functions of counts of verdicts.

AlpacaFarm, Section 4.3 and Appendix C.2. Counts are arrays of shape (pairs, 3): for each pair of
outputs, how many verdicts prefer the first, how many the second, and how many are ties. Each
measure is a function of sums over pairs, so that its error can be found by instruction.

A majority is of at most `panel` verdicts. With more, the measure is its expectation over all ways
to draw that many; tied modes share the majority evenly. So nothing is drawn at random, and the
result is the expectation of a random draw.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import factorial

import numpy as np
from numpy.typing import NDArray

from ..lake.statistics.clustered_estimates import Numbers, OfSums, quotient, ratio

Counts = NDArray[np.int64]
"""Shape (pairs, 3), or (pairs, 2) without ties."""

FIRST, SECOND, TIE = 0, 1, 2


def majority(counts: Counts, panel: int) -> Numbers:
    """Return the probability that each label is the majority of `panel` verdicts on a pair.

    Shape (pairs, labels); rows of pairs without a verdict are zero.
    """
    total = counts.sum(axis=1)
    shares = np.zeros(counts.shape)
    for size in range(1, panel + 1):
        rows = total == size if size < panel else total >= panel
        if rows.any():
            shares[rows] = _drawn_majority(counts[rows], size)
    return shares


def _drawn_majority(counts: Counts, size: int) -> Numbers:
    """Sum over all compositions of a draw of `size` verdicts, without replacement."""
    shares = np.zeros(counts.shape)
    for drawn in product(range(size + 1), repeat=counts.shape[1]):
        if sum(drawn) == size:
            ways = np.prod([_choose(counts[:, label], k) for label, k in enumerate(drawn)], axis=0)
            modes = np.array(drawn) == max(drawn)
            shares += ways[:, None] * (modes / modes.sum())
    return shares / _choose(counts.sum(axis=1), size)[:, None]


def _choose(n: NDArray[np.int64], k: int) -> Numbers:
    """Return the binomial coefficients; zero if n < k."""
    falling = np.ones(len(n))
    for step in range(k):
        falling *= n - step
    return falling / factorial(k)


def shares_of(counts: Counts) -> Numbers:
    """Return the share of each label among the verdicts on a pair; zero without verdicts."""
    total = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)


def match_rate(counts: Counts, standard: Numbers) -> OfSums:
    """Return how often a verdict is the right one.

    `standard` has shape (pairs, labels): how likely each label is to be right; zero on pairs that
    do not count.
    """
    given = np.where(standard.any(axis=1), counts.sum(axis=1), 0)
    return ratio((counts * standard).sum(axis=1), given)


def held_out_agreement(counts: Counts, panel: int) -> OfSums:
    """Return how often a verdict equals the majority of `panel` - 1 others on the same pair.

    One minus this is the annotators' variance (Section 4.3); of people, it is the
    agreement to expect from a judge as good as one of them.
    """
    matches = sum(
        (held * modes[:, label] for label, (held, modes) in enumerate(_held_out(counts, panel))),
        np.zeros(len(counts)),
    )
    several = counts.sum(axis=1) > 1
    return ratio(matches, np.where(several, counts.sum(axis=1), 0))


def in_place_standard(people: Counts, panel: int) -> Numbers:
    """Return the majority of `panel` - 1 people as the standard, leaving out each in turn."""
    total = np.maximum(people.sum(axis=1), 1)
    return sum(
        (modes * (held / total)[:, None] for held, modes in _held_out(people, panel)),
        np.zeros(people.shape),
    )


def _held_out(counts: Counts, panel: int) -> Iterator[tuple[NDArray[np.int64], Numbers]]:
    """Yield for each label its verdicts, and the majority of the others when one is held out."""
    for label in range(counts.shape[1]):
        there = counts[:, label] > 0
        others = counts[there]
        others[:, label] -= 1
        modes = np.zeros(counts.shape)
        modes[there] = majority(others, panel - 1)
        yield counts[:, label], modes


def majorities_agreement(counts: Counts, people: Counts, panel: int) -> OfSums:
    """Return how often the majorities of a judge's verdicts and of people's are the same.

    One minus this is the judge's bias (Appendix C.2).
    """
    both = (counts.sum(axis=1) > 0) & (people.sum(axis=1) > 0)
    same = (majority(counts, panel) * majority(people, panel)).sum(axis=1)
    return ratio(same, both)


def error(agreed: OfSums) -> OfSums:
    """Return one minus an agreement."""
    matches, comparisons = agreed.columns.T
    return ratio(comparisons - matches, comparisons)


def preference_for(sign: Numbers, counts: Counts) -> OfSums:
    """Return how often the output with more of something is preferred, without ties.

    `sign` is 1 if the second output has more of it, -1 if the first has, 0 if neither.
    """
    for_it = np.where(sign > 0, counts[:, SECOND], counts[:, FIRST])
    decided = counts[:, FIRST] + counts[:, SECOND]
    return ratio(np.where(sign != 0, for_it, 0), np.where(sign != 0, decided, 0))


def first_shown(as_given: Counts, swapped: Counts) -> OfSums:
    """Return how often the output that was shown first is preferred, ties left out.

    Without bias it is one half, if outputs were shown in random order or in both orders.
    """
    chosen = as_given[:, FIRST] + swapped[:, SECOND]
    decided = as_given[:, :TIE].sum(axis=1) + swapped[:, :TIE].sum(axis=1)
    return ratio(chosen, decided)


def order_agreement(as_given: Counts, swapped: Counts) -> OfSums:
    """Return how often the verdict is the same in both orders; each pair counts once."""
    comparisons = as_given.sum(axis=1) * swapped.sum(axis=1)
    same = (as_given * swapped).sum(axis=1)
    return ratio(
        np.divide(same, comparisons, out=np.zeros(len(comparisons)), where=comparisons > 0),
        comparisons > 0,
    )


def repeat_agreement(repeats: Sequence[Counts]) -> OfSums:
    """Return how often two verdicts on the same question agree, each pair counting once.

    Args:
        repeats: The counts of each order of the outputs: a question is a pair in one order.
    """
    comparisons = sum((c.sum(axis=1) * (c.sum(axis=1) - 1) for c in repeats), np.zeros(1))
    same = sum(((c * (c - 1)).sum(axis=1) for c in repeats), np.zeros(1))
    return ratio(
        np.divide(same, comparisons, out=np.zeros(len(comparisons)), where=comparisons > 0),
        comparisons > 0,
    )


# Kappas are (observed - expected) / (1 - expected), in which the expected agreement is between
# annotators who give each label as often as these do, regardless of the pair. They are undefined
# if all verdicts are the same.


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
