"""Whether two ways of measuring rank methods alike (AlpacaFarm, Figure 3).

Methods are ranked in two groups of runs, for example with simulated annotators and with people's
labels. Spearman's correlation is computed from the two lists of ranks; equal values share the mean
of their ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ..lake.query.forms import FormError
from .compare_runs import Result, by_method, incomparable, results

LEAST = 3
"""The fewest methods: two ranks either agree or not, which proves little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingAgreement:
    """Methods by a metric in two groups of runs, with their ranks, and Spearman's rho of these.

    `frame` has a row for each method that both groups have measured, the best of the first group
    first. `remarks` list values that must not be compared.
    """

    metric: str
    frame: pl.DataFrame
    rho: float
    remarks: Sequence[str]


def ranking_agreement(
    lake: Path,
    names: Sequence[str],
    others: Sequence[str],
    *,
    metric: str = "win_rate",
    task: str | None = None,
) -> RankingAgreement:
    """Rank methods by a metric in two groups of runs, each method by its runs' mean.

    Raises:
        NoSuchRunError: if a run does not exist, or has measured nothing.
        FormError: with fewer than three methods that both have, or if all of a group are equal.
    """
    groups = [by_method(results(lake, group, task=task)) for group in (names, others)]
    first, second = (_values(group, metric) for group in groups)
    rows = [(name, value, second[name]) for name, value in first.items() if name in second]
    if len(rows) < LEAST:
        both = ", ".join(name for name, *_ in rows) or "none"
        raise FormError(
            f"{metric} is measured in both groups for {len(rows)} methods ({both}); a ranking "
            f"needs at least {LEAST}"
        )
    frame = pl.DataFrame(rows, schema=["method", "value", "value_other"], orient="row")
    ranks = frame.with_columns(
        pl.col(name).rank("average", descending=True).alias(name.replace("value", "rank"))
        for name in ("value", "value_other")
    ).sort("rank", "method")
    if 1 in (frame["value"].n_unique(), frame["value_other"].n_unique()):
        raise FormError(f"{metric} is the same for all methods of a group, which ranks none")
    rho: float = ranks.select(pl.corr("rank", "rank_other")).item()
    named = zip(("the runs", "the other runs"), groups, strict=True)
    reasons = [(which, incomparable(group, metric)) for which, group in named]
    return RankingAgreement(
        metric=metric,
        frame=ranks.with_columns(spearman=pl.lit(rho)),
        rho=rho,
        remarks=[f"{metric} of {which} is {reason}" for which, reason in reasons if reason],
    )


def _values(group: Sequence[Result], metric: str) -> Mapping[str, float]:
    return {r.method: r.numbers[metric].value for r in group if metric in r.numbers}
