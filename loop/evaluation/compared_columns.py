"""The columns of a comparison of runs, in the form of AlpacaFarm's Table 2, as texts."""

from collections.abc import Iterator, Sequence

from ..lake.query.figures import SHARES
from ..lake.statistics.share_interval import share_interval
from .compare_runs import INITIAL, Measure, Result, incomparable, undecided_prompts

COLUMNS = (
    ("verified", "Verified %", 100, 1),
    ("approval", "Approval %", 100, 1),
    ("win_rate", "Win %", 100, 1),
    ("length_controlled_win_rate", "LC %", 100, 1),
    ("true_score", "True", 1, 2),
    ("reward", "Reward", 1, 2),
    ("mean_length", "Length", 1, 1),
    ("kl", "KL", 1, 2),
)
"""The columns of the table: metric, heading, factor, decimals."""
MARK = "*"
"""Marks a figure that must not be compared."""
Column = tuple[str, list[str]]
"""A heading, and a cell for each result."""
RIVALRY = ("verified", "approval", "win_rate", "true_score")
"""The metrics for which one method's lead over another is shown."""


def figure_columns(found: Sequence[Result], rival: Result | None) -> Iterator[Column]:
    """Give the column of each figure that was measured, and of its lead over a rival."""
    for column in COLUMNS:
        metric, heading, *_ = column
        if not any(metric in result.numbers for result in found):
            continue
        mark = MARK if incomparable(found, metric) else ""
        yield f"{heading}{mark}", [_number(result, *column) for result in found]
        if rival is not None and metric in RIVALRY:
            yield f"{heading} lead{mark}", [_lead(result, rival, *column) for result in found]


def spent_columns(found: Sequence[Result]) -> Iterator[Column]:
    """Give the columns of what the results cost."""
    free = [result.method == INITIAL for result in found]
    tokens, hours = [f"{r.tokens:,.0f}" for r in found], [f"{r.hours:.2f}" for r in found]
    for heading, cells in (("Tokens", tokens), ("Hours", hours)):
        yield heading, ["" if none else cell for none, cell in zip(free, cells, strict=True)]


def errors_over(found: Sequence[Result]) -> str:
    """Say what the errors in the table are over."""
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
    """Say which figures in the tables must not be compared as they stand, and why."""
    reasons: dict[str, list[str]] = {}
    for metric, heading, *_ in COLUMNS:
        reason = incomparable(found, metric)
        if reason is not None:
            reasons.setdefault(reason, []).append(heading)
    for reason, headings in reasons.items():
        yield f"{MARK} not comparable as it stands: {', '.join(headings)}, measured {reason}"
    left_out = undecided_prompts(found)
    if left_out:
        yield (
            f"the math of {left_out} prompts was not decided in one of the results "
            "(math_undecided): they have no verified score there, and leads are over the others"
        )


def bounds_of(metric: str, measure: Measure) -> tuple[float, float] | None:
    """Return the 95 % interval of a measure that is a share."""
    if metric not in SHARES:
        return None
    return share_interval(measure.value, measure.stderr, measure.n)


def _number(result: Result, metric: str, _: str, scale: float, decimals: int) -> str:
    measure = result.numbers.get(metric)
    if measure is None:
        return "-"
    within = bounds_of(metric, measure)
    if within is not None and not measure.stderr:
        low, high = (scale * end for end in within)
        return f"{measure.value * scale:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
    error = "" if measure.stderr is None else f" ±{measure.stderr * scale:.{decimals}f}"
    return f"{measure.value * scale:.{decimals}f}{error}"


def _lead(result: Result, rival: Result, metric: str, _: str, scale: float, decimals: int) -> str:
    lead = result.lead(rival, metric)
    if lead is None or result is rival:
        return "-"
    low, high = (end * scale for end in lead.interval)
    return f"{lead.value * scale:+.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
