"""The columns of a comparison of runs, in the form of AlpacaFarm's Table 2, as texts."""

from collections.abc import Iterator, Sequence

from ..lake.query.figures import SHARES, figure_interval
from ..lake.query.told_figures import (
    figure_label,
    figure_name,
    told_bounds,
    told_difference,
    told_level,
    told_value,
)
from .compare_runs import INITIAL, Measure, Result, incomparable, undecided_prompts

COLUMNS = (
    *("verified", "approval", "win_rate", "length_controlled_win_rate"),
    *("true_score", "reward", "mean_length", "kl"),
)
"""The figures that the table shows, if they were measured."""
MARK = "*"
"""Marks a figure that must not be compared."""
Column = tuple[str, list[str]]
"""A heading, and a cell for each result."""
RIVALRY = ("verified", "approval", "win_rate", "true_score")
"""The metrics for which one method's lead over another is shown."""


def figure_columns(found: Sequence[Result]) -> Iterator[Column]:
    """Give the column of each figure that was measured."""
    for metric in COLUMNS:
        if not any(metric in result.numbers for result in found):
            continue
        heading = figure_label(metric)
        mark = MARK if incomparable(found, metric) else ""
        yield f"{heading}{mark}", [_number(result, metric) for result in found]


def spent_columns(found: Sequence[Result]) -> Iterator[Column]:
    """Give the columns of the results' costs."""
    free = [result.method == INITIAL for result in found]
    tokens, hours = [f"{r.tokens:,.0f}" for r in found], [f"{r.hours:.2f}" for r in found]
    for heading, cells in (("Tokens used", tokens), ("Hours", hours)):
        yield heading, ["" if none else cell for none, cell in zip(free, cells, strict=True)]


def errors_over(found: Sequence[Result]) -> str:
    """Return the units that the table's errors are over, as text."""
    prompts = "clusters of prompts" if any(r.clusters for r in found) else "prompts"
    return f"{prompts} and runs" if any(len(r.runs) > 1 for r in found) else prompts


def result_name(result: Result, *, together: bool) -> str:
    """Return the method, and how many runs were averaged, or which run and which of its models."""
    if together:
        runs = len(result.runs)
        return f"{result.method}, {runs} run" + ("s" if runs > 1 else "")
    if result.method == INITIAL:
        return f"{result.method}, {', '.join(result.runs)}"
    return f"{result.method}, {', '.join(result.runs)} M_{result.iteration}"


def comparison_remarks(found: Sequence[Result]) -> Iterator[str]:
    """Yield remarks on figures of the tables that must not be compared, and why."""
    reasons: dict[str, list[str]] = {}
    for metric in COLUMNS:
        reason = incomparable(found, metric)
        if reason is not None:
            reasons.setdefault(reason, []).append(figure_name(metric))
    for reason, headings in reasons.items():
        yield f"{MARK} not comparable as it stands: {', '.join(headings)}, measured {reason}"
    left_out = undecided_prompts(found)
    if left_out:
        yield (
            f"the math of {left_out} prompts was not decided in one of the results "
            "(math_undecided): they have no verified score there, and leads are over the others"
        )


def bounds_of(metric: str, measure: Measure) -> tuple[float, float] | None:
    """Return the 95 % interval of a measure."""
    return figure_interval(metric, measure.value, measure.stderr, measure.n)


def lead_levels(found: Sequence[Result], rival: Result | None) -> str | None:
    """Return the levels of the leads' bounds, as text; None without leads."""
    leads = [r.lead(rival, m) for r in found for m in RIVALRY if rival is not None and r != rival]
    changes = [lead.change for lead in leads if lead is not None]
    levels = {c.level for c in changes if c.low is not None and c.level is not None}
    told = [told_level(level) for level in sorted(levels)]
    if not told:
        return None
    return f"leads: each bound errs in at most {' or '.join(dict.fromkeys(told))} of comparisons"


def _number(result: Result, metric: str) -> str:
    measure = result.numbers.get(metric)
    if measure is None:
        return "-"
    told = told_value(metric, measure.value)
    within = bounds_of(metric, measure)
    if metric in SHARES and within is not None and not measure.stderr:
        return f"{told} [{told_value(metric, within[0])}, {told_value(metric, within[1])}]"
    return told if measure.stderr is None else f"{told} ±{told_value(metric, measure.stderr)}"


def told_lead(result: Result | None, rival: Result | None, metric: str) -> str:
    """Return a result's lead over a rival, with the bounds; a dash if it is unknown."""
    if result is None or rival is None or result is rival:
        return "-"
    lead = result.lead(rival, metric)
    if lead is None:
        return "-"
    change = lead.change
    told = told_difference(metric, change.value)
    return f"{told} {told_bounds(metric, change.low, change.high)}".rstrip()
