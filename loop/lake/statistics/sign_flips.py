"""Whether a paired difference is beyond chance: a sign-flip test.

If nothing has changed, each prompt's difference is as likely to have the other sign. The test is
exact if differences are few whole numbers, as for verdicts, for which it equals McNemar's; for many
the normal distribution is near enough.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

EXACT = 4_000
"""The largest sum of differences, without their signs, that is enumerated."""


def chance_of_rise(differences: Sequence[float]) -> float:
    """Return the one-sided p-value of a sum of paired differences above 0.

    Of differences that are not whole numbers, the signs alone count.
    """
    whole = all(float(value).is_integer() for value in differences)
    sizes = [int(v) if whole else (v > 0) - (v < 0) for v in differences if v]
    total = sum(sizes)
    if total <= 0:
        return 1.0
    spread = [abs(size) for size in sizes]
    if sum(spread) > EXACT:
        return 0.5 * math.erfc(total / math.sqrt(2 * sum(s * s for s in spread)))
    # `chances[k]`: that the sum of those seen so far is k above the lowest there can be.
    chances = np.ones(1)
    for size in spread:
        wider = np.zeros(len(chances) + 2 * size)
        wider[: len(chances)] += chances / 2
        wider[2 * size :] += chances / 2
        chances = wider
    return float(chances[total + sum(spread) :].sum())


def summed(differences: Mapping[str, float], units: Mapping[str, str]) -> list[float]:
    """Return the sums of differences by unit; a key without a unit is a separate unit."""
    sums = dict[str, float]()
    for name, value in differences.items():
        unit = units.get(name, f"\0{name}")
        sums[unit] = sums.get(unit, 0.0) + value
    return list(sums.values())
