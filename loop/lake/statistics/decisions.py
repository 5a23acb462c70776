"""Is one policy better than another? A three-valued answer from results on the same prompts.

The answer follows from bounds of the mean difference, which `clustered_bounds.py` derives.
results/evaluation.md shows its error rate and its power.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from ....stores.records import Answer
from .clustered_bounds import bounds, cluster_sums, prompts_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedResults:
    """The results of two policies on the prompts that both answered, and each prompt's cluster."""

    before: Sequence[float]
    after: Sequence[float]
    clusters: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether the policy of `after` is better than the policy of `before`, with an interval.

    `low` and `high` bound the mean difference, each at the requested level; None if clusters are
    too few or too unequal for a bound. `gained` and `lost` are the shares of prompts that got
    better and worse. `needed` is how many prompts, in clusters like these, would decide if results
    continued as seen; None if it is decided, or no number would decide.
    """

    n: int
    clusters: int
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    gained: float
    lost: float
    answer: Answer
    needed: int | None


def level_of_look(error_rate: float, look: int, earlier: Sequence[bool] = ()) -> float:
    """Return the one-sided level of a comparison that is the `look`-th of its kind, from 1.

    The levels of all looks, however many there will be, add up to `error_rate`: this bounds the
    probability that any of them errs, however the looks depend on each other. They fall as 1 /
    look^2 (6 / pi^2 makes the sum 1; this spends the error as Lan and DeMets 1983 do, for an
    unknown number of looks): of 0.05 the looks 1 to 5 get 0.030, 0.0076, 0.0034, 0.0019, 0.0012.
    Against 1 / (look * (look + 1)), which gives 0.025, 0.0083, 0.0042, 0.0025, 0.0017, more is left
    for the first look, which every run takes: a gain of 3 standard errors is seen at looks 1 to 5
    in 87, 72, 62, 54, 49 % of cases, there in 85, 73, 64, 58, 53 %.

    `earlier` lists whether each look before found a difference ("better"). Alpha is recycled: the
    level spent on a finding is added to the next look (Tian and Ramdas 2021, "online fallback"),
    which keeps the error rate, and tests a run that gains each time at a level that never falls.
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1, not {look}")
    found = look > 1 and len(earlier) >= look - 1 and earlier[look - 2]
    carried = level_of_look(error_rate, look - 1, earlier) if found else 0.0
    return carried + error_rate * 6 / (pi * look) ** 2


def decide(results: PairedResults, *, alpha: float, worthwhile: float) -> Decision:
    """Return whether the policy of `after` is better, by bounds at the one-sided level `alpha`.

    "not better": the upper bound is below `worthwhile`. "better": the lower bound is above 0. If
    both are true, the gain is real but too small to matter: "not better".

    Raises:
        ValueError: if results are empty.
    """
    if len(results.before) == 0:
        raise ValueError("no prompt was answered by both")
    sums = cluster_sums(results.before, results.after, results.clusters)
    low, high = bounds(sums, alpha) or (None, None)
    answer: Answer = "undecided"
    if high is not None and high < worthwhile:
        answer = "not better"
    elif low is not None and low > 0:
        answer = "better"
    before, after = np.asarray(results.before, float), np.asarray(results.after, float)
    return Decision(
        n=len(before),
        clusters=round(sums.clusters),
        before=float(before.mean()),
        after=float(after.mean()),
        difference=sums.total / sums.n,
        low=low,
        high=high,
        gained=float((after > before).mean()),
        lost=float((after < before).mean()),
        answer=answer,
        needed=prompts_needed(sums, alpha, worthwhile) if answer == "undecided" else None,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return each p-value as it counts among all of them (Holm 1979).

    Those at or below a level then err, in any of the comparisons, at most that often.
    """
    adjusted: dict[str, float] = {}
    most = 0.0
    ordered = sorted(p_values, key=lambda name: (p_values[name], name))
    for place, name in enumerate(ordered):
        most = max(most, min(1.0, (len(ordered) - place) * p_values[name]))
        adjusted[name] = most
    return {name: adjusted[name] for name in p_values}


def too_few(prompts: int, clusters: int) -> str:
    """Return why a difference lacks bounds: its clusters are too few, or one weighs too much."""
    counted = f"{prompts:,} prompts are only {clusters:,} cluster" + ("s" if clusters > 1 else "")
    if clusters == prompts:
        counted = f"there are only {prompts:,} prompts" if prompts > 1 else "there is only 1 prompt"
    return f"{counted}: too few, or too unequal, for bounds"
