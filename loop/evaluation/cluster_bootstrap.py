"""Measures with their intervals: the percentile bootstrap, clustered by instruction.

Pairs of one instruction are not independent, so it is instructions that are drawn again, each with
all its pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .judge_statistics import Numbers, Ratio

BLOCK = 250
"""Resamples that are made at a time."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measure with its 95 % interval; `low` and `high` are None for fewer than two instructions.

    `n` is what was averaged over: verdicts, or pairs where verdicts were compared with each other.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    instructions: int


def estimates(
    ratios: Sequence[Ratio], instructions: NDArray[np.int64], *, draws: int, seed: int
) -> list[Estimate | None]:
    """Return each measure with its percentile bootstrap interval, clustered by instruction.

    All measures are taken from the same resamples. None stands where there is nothing to measure.

    Args:
        ratios: The measures, over the same pairs.
        instructions: Which instruction each pair belongs to, counted from 0; shape (pairs,).
        draws: Number of resamples.
        seed: Seed of the resampling.
    """
    clusters = int(instructions.max()) + 1
    columns = np.stack([c for r in ratios for c in (r.numerator, r.denominator)], axis=1)
    sums = np.zeros((clusters, columns.shape[1]))
    np.add.at(sums, instructions, columns)
    resampled = _resampled(sums, draws, seed)
    return [
        _estimate(sums[:, 2 * k : 2 * k + 2], resampled[:, 2 * k : 2 * k + 2])
        for k in range(len(ratios))
    ]


def _resampled(sums: Numbers, draws: int, seed: int) -> Numbers:
    """Return the sums over resampled clusters; shape (draws, columns)."""
    generator = np.random.default_rng(seed)
    clusters = len(sums)
    even = np.full(clusters, 1 / clusters)
    blocks = [min(BLOCK, draws - start) for start in range(0, draws, BLOCK)]
    return np.concatenate(
        [generator.multinomial(clusters, even, size=size) @ sums for size in blocks]
    )


def _estimate(sums: Numbers, resampled: Numbers) -> Estimate | None:
    numerator, denominator = sums.sum(axis=0)
    if not denominator:
        return None
    there = int((sums[:, 1] > 0).sum())
    low = high = None
    if there > 1:
        kept = resampled[resampled[:, 1] > 0]
        tails = (1 - LEVEL) / 2
        low, high = map(float, np.quantile(kept[:, 0] / kept[:, 1], (tails, 1 - tails)))
    return Estimate(
        value=float(numerator / denominator),
        low=low,
        high=high,
        n=round(denominator),
        instructions=there,
    )
