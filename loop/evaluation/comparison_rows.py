"""Compared runs as rows: one for each result, with its numbers and its lead over a rival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ...stores.keys import Json
from ..lake.query.forms import FormError
from .compare_runs import INITIAL, Result, by_method, incomparable, results
from .compared_columns import RIVALRY, bounds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """The results of runs, and the rival over which the others' leads are computed."""

    found: Sequence[Result]
    rival: Result | None

    @property
    def frame(self) -> pl.DataFrame:
        """One row a result."""
        rows = [_row(result, self.rival, self.found) for result in self.found]
        return pl.DataFrame(rows, infer_schema_length=None)


def compared_runs(
    lake: Path,
    names: Sequence[str],
    *,
    together: bool = False,
    against: str | None = None,
    task: str | None = None,
    methods: Mapping[str, str] | None = None,
) -> ComparedRuns:
    """Compare runs of a lake; `together` averages over the runs of a method, named by `methods`.

    Raises:
        NoSuchRunError: if a run does not exist, or has measured nothing.
        FormError: if `against` is not in the comparison.
    """
    found = results(lake, names, task=task, methods=methods)
    if together:
        found = by_method(found)
    return ComparedRuns(found=found, rival=None if against is None else _rival(against, found))


def result_named(name: str, found: Sequence[Result]) -> Result | None:
    """Return the result of a method or a run; a run's is that of its policy, not of its M_0."""
    named = [result for result in found if name == result.method or name in result.runs]
    return min(named, key=lambda result: result.method == INITIAL, default=None)


def _rival(name: str, found: Sequence[Result]) -> Result:
    rival = result_named(name, found)
    if rival is None:
        known = ", ".join(dict.fromkeys(result.method for result in found))
        raise FormError(f"--against {name}: not in the comparison, which has {known}")
    return rival


def _row(result: Result, rival: Result | None, found: Sequence[Result]) -> dict[str, Json]:
    row: dict[str, Json] = {
        "method": result.method,
        "runs": list(result.runs),
        "iteration": result.iteration,
        "benchmark": result.benchmark,
        "checkpoint": result.checkpoint,
        "tokens": result.tokens,
        "hours": result.hours,
    }
    for metric, measure in sorted(result.numbers.items()):
        row |= {metric: measure.value, f"{metric}_stderr": measure.stderr}
        within = bounds_of(metric, measure)
        if within is not None:
            row |= {f"{metric}_low": within[0], f"{metric}_high": within[1]}
    for metric in RIVALRY if rival is not None else ():
        lead = result.lead(rival, metric) if rival is not None else None
        change = None if lead is None else lead.change
        row |= {
            f"{metric}_lead": change and change.value,
            f"{metric}_lead_stderr": lead and lead.stderr,
            f"{metric}_lead_low": change and change.low,
            f"{metric}_lead_high": change and change.high,
            f"{metric}_lead_level": change and change.level,
        }
    reasons = {metric: incomparable(found, metric) for metric in result.numbers}
    row["incomparable"] = sorted(metric for metric, reason in reasons.items() if reason)
    return row
