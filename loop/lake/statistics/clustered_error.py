"""The standard error of a mean over prompts, with dependent prompts within clusters.

The deviations of a cluster's prompts are summed up first: ten wordings of a question that all fail
together weigh as one. If every prompt is a separate cluster this is the usual error, the standard
deviation over the root of their number.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more the second of two models has, over the `n` prompts that both answered.

    `standard_error` is clustered; the unit is the scores'.
    """

    value: float
    standard_error: float | None
    n: int


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


def difference(
    first: Mapping[str, float],
    second: Mapping[str, float],
    clusters: Mapping[str, str] | None = None,
) -> Difference | None:
    """Return the mean of second - first over the prompts of both, by prompt; None without any.

    `clusters` names the cluster of prompts whose results depend on each other.
    """
    common = sorted(first.keys() & second.keys())
    if not common:
        return None
    apart = [second[prompt] - first[prompt] for prompt in common]
    about = [(clusters or {}).get(prompt, prompt) for prompt in common]
    return Difference(value=fmean(apart), standard_error=mean_error(apart, about), n=len(apart))
