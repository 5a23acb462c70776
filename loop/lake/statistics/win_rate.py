"""The value of a preference, and the difference between two models' results.

AlpacaFarm, Section 3 and AlpacaEval: a preference of 1 means that the reference wins, 2 that the
model does, 0 or 1.5 that neither; values between 1 and 2 are the judge's probability. The win-rate
is mean(preference - 1), so a draw counts half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from .clustered_error import mean_error

TIES = (0.0, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more the second of two models has, over the `n` prompts that both answered.

    `standard_error` is clustered; the unit is the scores'.
    """

    value: float
    standard_error: float | None
    n: int


def share_won(preference: float) -> float:
    """Return a preference's value for the model: 0, 1, or between for a draw or in doubt."""
    return 0.5 if preference in TIES else preference - 1


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
