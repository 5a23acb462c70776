"""The standard error of a mean over prompts, with dependent prompts within clusters.

The deviations of a cluster's prompts are summed up first: ten wordings of a question that all fail
together weigh as one. If every prompt is a separate cluster this is the usual error, the standard
deviation over the root of their number.
"""

import math
from collections.abc import Hashable, Sequence
from statistics import fmean


def mean_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Return the standard error of the mean of `values`; None if all are of one cluster."""
    mean = fmean(values) if values else 0.0
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) <= 1:
        return None
    squares = math.fsum(total * total for total in sums.values())
    return math.sqrt(squares * len(sums) / (len(sums) - 1)) / len(values)
