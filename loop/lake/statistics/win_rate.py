"""The win-rate against a reference, and the difference between two models' win-rates.

AlpacaFarm, Section 3 and AlpacaEval: a preference of 1 means that the reference wins, 2 that the
model does, 0 or 1.5 that neither; what lies between is the judge's probability. The win-rate is
mean(preference - 1), so a draw counts half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .bootstrap import mean_interval, numbered
from .clustered_error import mean_error

TIES = (0.0, 1.5)
DRAWS = 10_000
"""Bootstrap resamples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """A win-rate, from 0 to 1, of `n` read preferences, `n_draws` draws; `n_unscored` are unread.

    `standard_error` and `interval`, a bootstrap interval of level 95 %, are those of clusters; the
    error is None for a single one.
    """

    win_rate: float
    standard_error: float | None
    n: int
    n_draws: int
    n_unscored: int
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much more often the second of two models wins, over the `n` prompts that both answered.

    `standard_error` and `interval`, a paired bootstrap interval of level 95 %, are those of
    clusters; the unit is that of the scores.
    """

    value: float
    standard_error: float | None
    interval: tuple[float, float]
    n: int


def share_won(preference: float) -> float:
    """Return what a preference is worth to the model: 0, 1, or between for a draw or in doubt."""
    return 0.5 if preference in TIES else preference - 1


def win_rate(
    preferences: Sequence[float | None], prompts: Sequence[str], *, seed: int = 0
) -> WinRate:
    """Return the win-rate of preferences, each about the prompt beside it; None was not read.

    Raises:
        ValueError: if none was read: there is no win-rate.
    """
    read = [(p, x) for p, x in zip(preferences, prompts, strict=True) if p is not None]
    if not read:
        raise ValueError("no preference could be read, so there is no win-rate")
    won = [share_won(preference) for preference, _ in read]
    about = [prompt for _, prompt in read]
    spread = mean_interval(won, numbered(about), draws=DRAWS, seed=seed)
    return WinRate(
        win_rate=fmean(won),
        standard_error=mean_error(won, about),
        n=len(won),
        n_draws=sum(preference in TIES for preference, _ in read),
        n_unscored=len(preferences) - len(read),
        interval=(spread.low, spread.high),
    )


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
