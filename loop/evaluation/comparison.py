"""Compared runs: a table of texts, figure by figure, and rows for programs.

The figures are those of AlpacaFarm's Table 2, for all held-out prompts, and for each eval set and
task that the runs share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ...stores.keys import Json
from ..data.text import one_line
from ..lake.query.critic_scores import AGREEMENT
from ..lake.query.figures import COUNTS, SHARES, figure_interval, place_of
from ..lake.query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_levels,
    format_value,
)
from ..lake.query.forms import FormError
from ..lake.query.policy_figures import RATING, SUCCESSES
from ..lake.query.runs import open_run
from .compare_runs import (
    INITIAL,
    Measure,
    Result,
    by_method,
    incomparable,
    measured_scores,
    results,
    undecided_prompts,
)

MARK = "*"
"""Marks a figure that must not be compared."""
RIVALRY = ("verified", "approval", "win_rate", "true_score")
"""The metrics for which rows have a method's lead over another."""
PART = 30
"""The most characters of a task's name."""
Line = tuple[str, list[str]]
"""A label, and a cell for each result."""


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
) -> ComparedRuns:
    """Compare runs of a lake; `together` averages over the runs of a method.

    Raises:
        NoSuchRunError: if a run does not exist, or has measured nothing.
        FormError: if `against` is not in the comparison.
    """
    found = results(lake, names, task=task)
    if together:
        found = by_method(found)
    rival = None if against is None else result_named(against, found)
    if against is not None and rival is None:
        known = ", ".join(dict.fromkeys(result.method for result in found))
        raise FormError(f"--against {against}: not in the comparison, which has {known}")
    return ComparedRuns(found=found, rival=rival)


def results_by_part(
    lake: Path, names: Sequence[str], *, together: bool
) -> Mapping[str, Sequence[Result]]:
    """Return the results of runs on each eval set and each of several tasks that all measured."""
    eval_sets, tasks = (_shared_names(lake, names, by) for by in ("eval_set", "task"))
    found = {f"eval set {one}": results(lake, names, eval_set=one) for one in eval_sets}
    if len(tasks) > 1:
        found |= {one: results(lake, names, task=one) for one in tasks}
    return {name: by_method(of) if together else of for name, of in found.items()}


def _shared_names(lake: Path, names: Sequence[str], by: str) -> list[str]:
    """Return the tasks, or the eval sets, on which each of several runs has measured answers."""
    shared: set[str] | None = None
    for name in names:
        run = open_run(lake, name)
        scored = measured_scores(run).select("prompt_id").unique()
        prompts = run.scan("prompts").select("prompt_id", by).drop_nulls()
        own = prompts.join(scored, on="prompt_id", how="semi").select(by).unique().collect()
        run.close()
        shared = set(own[by]) if shared is None else shared & set(own[by])
    return sorted(shared or ())


def result_named(name: str, found: Sequence[Result]) -> Result | None:
    """Return the result of a method or a run; a run's is that of its policy, not of its M_0."""
    named = [result for result in found if name == result.method or name in result.runs]
    return min(named, key=lambda result: result.method == INITIAL, default=None)


def result_name(result: Result, *, together: bool) -> str:
    """Return the method, and how many runs were averaged, or which run and which of its models."""
    if together:
        runs = len(result.runs)
        return f"{result.method}, {runs} run" + ("s" if runs > 1 else "")
    if result.method == INITIAL:
        return f"{result.method}, {', '.join(result.runs)}"
    return f"{result.method}, {', '.join(result.runs)} M_{result.iteration}"


def figure_lines(
    heads: Sequence[Result],
    found: Sequence[Result],
    *,
    part: str = "",
    against: str | None = None,
) -> Iterator[Line]:
    """Give a line for each figure: every result's value with its error, and its lead over a rival.

    `found` are the results of `heads` on a part of the prompts.
    """
    own = {(result.method, result.runs): result for result in found}
    cells = [own.get((head.method, head.runs)) for head in heads]
    rival = None if against is None else result_named(against, found)
    place = f"{one_line(part, limit=PART)}: " if part else ""
    for metric in sorted({m for r in found for m in r.numbers if _is_shown(m)}, key=place_of):
        mark = MARK if incomparable(found, metric) else ""
        label = f"{place}{figure_label(metric)}{mark}"
        yield label, ["-" if one is None else _cell(one, rival, metric) for one in cells]


def spent_lines(found: Sequence[Result]) -> list[Line]:
    """Return the lines of the results' costs; M_0 was free."""
    free = [result.method == INITIAL for result in found]
    tokens, hours = [f"{r.tokens:,.0f}" for r in found], [f"{r.hours:.2f}" for r in found]
    return [
        (label, ["" if none else cell for none, cell in zip(free, cells, strict=True)])
        for label, cells in (("tokens used", tokens), ("hours", hours))
    ]


def errors_over(found: Sequence[Result]) -> str:
    """Return the units that the table's errors are over, as text."""
    prompts = "clusters of prompts" if any(r.clusters for r in found) else "prompts"
    return f"{prompts} and runs" if any(len(r.runs) > 1 for r in found) else prompts


def comparison_remarks(found: Sequence[Result]) -> Iterator[str]:
    """Yield remarks on figures of the table that must not be compared, and why."""
    reasons: dict[str, list[str]] = {}
    for metric in sorted({m for r in found for m in r.numbers if _is_shown(m)}, key=place_of):
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


def lead_levels(found: Sequence[Result], rival: Result) -> str | None:
    """Return the levels of the leads' bounds, as text; None without leads."""
    leads = [r.lead(rival, m) for r in found for m in r.numbers if _is_shown(m) and r is not rival]
    levels = format_levels(c.level for c in leads if c is not None and c.low is not None)
    return None if levels is None else f"leads: {levels}"


def bounds_of(metric: str, measure: Measure) -> tuple[float, float] | None:
    """Return the 95 % interval of a measure."""
    return figure_interval(metric, measure.value, measure.stderr, measure.n)


def _is_shown(metric: str) -> bool:
    # The parts of `verified` and of `approval` are not repeated.
    return metric not in (*COUNTS, AGREEMENT, *SUCCESSES) and not metric.startswith(RATING)


def _cell(result: Result, rival: Result | None, metric: str) -> str:
    measure = result.numbers.get(metric)
    if measure is None:
        return "-"
    text = format_value(metric, measure.value)
    within = bounds_of(metric, measure)
    if metric in SHARES and within is not None and not measure.stderr:
        text += f" [{format_value(metric, within[0])}, {format_value(metric, within[1])}]"
    elif measure.stderr is not None:
        text += f" ±{format_value(metric, measure.stderr)}"
    change = None if rival is None or result is rival else result.lead(rival, metric)
    if change is None:
        return text
    bounds = format_bounds(metric, change.low, change.high)
    return f"{text}  {format_difference(metric, change.value)} {bounds}".rstrip()


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
        change = result.lead(rival, metric) if rival is not None else None
        row |= {
            f"{metric}_lead": change and change.value,
            f"{metric}_lead_low": change and change.low,
            f"{metric}_lead_high": change and change.high,
            f"{metric}_lead_level": change and change.level,
        }
    reasons = {metric: incomparable(found, metric) for metric in result.numbers}
    row["incomparable"] = sorted(metric for metric, reason in reasons.items() if reason)
    return row
