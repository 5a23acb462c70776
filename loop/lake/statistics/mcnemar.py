"""McNemar's exact test of results that are right or wrong, on the same prompts.

It looks at the prompts that changed sides: without any effect each would be as likely to go one way
as the other.
"""

from math import comb


def mcnemar(better: int, worse: int) -> float:
    """Return McNemar's exact two-sided p-value for this many changes either way."""
    changed, fewer = better + worse, min(better, worse)
    tail = sum(comb(changed, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**changed)
