"""The value of a preference, and the difference between two models' results.

AlpacaFarm, Section 3 and AlpacaEval: a preference of 1 means that the reference wins, 2 that the
model does, 0 or 1.5 that neither; values between 1 and 2 are the judge's probability. The win-rate
is mean(preference - 1), so a draw counts half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from .bootstrap import mean_interval, numbered
from .clustered_error import mean_error

TIES = (0.0, 1.5)
DRAWS = 10_000
"""Bootstrap resamples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more often the second of two models wins, over the `n` prompts that both answered.

    `standard_error` and `interval`, a paired bootstrap interval of level 95 %, are clustered; the
    unit is the scores'.
    """

    value: float
    standard_error: float | None
    interval: tuple[float, float]
    n: int


def share_won(preference: float) -> float:
    """Return a preference's value for the model: 0, 1, or between for a draw or in doubt."""
    return 0.5 if preference in TIES else preference - 1


def difference(
    first: Mapping[str, float],
    second: Mapping[str, float],
    clusters: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
) -> Difference | None:
    """Return the mean of second - first over the prompts of both, by prompt; None without any.

    `clusters` names the cluster of prompts that are drawn together.
    """
    common = sorted(first.keys() & second.keys())
    if not common:
        return None
    apart = [second[prompt] - first[prompt] for prompt in common]
    about = [(clusters or {}).get(prompt, prompt) for prompt in common]
    spread = mean_interval(apart, numbered(about), draws=DRAWS, seed=seed)
    return Difference(
        value=fmean(apart),
        standard_error=mean_error(apart, about),
        interval=(spread.low, spread.high),
        n=len(apart),
    )
