"""The report of several runs: their results in one table, which is better, and their curves."""

from collections.abc import Iterator, Sequence

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.compare_runs import Result
from ..evaluation.comparison import (
    comparison_remarks,
    errors_over,
    figure_lines,
    result_name,
    spent_lines,
)
from ..evaluation.pairwise_verdicts import PairwiseVerdict, apart, pairwise_verdicts
from ..evaluation.plots import Lines
from ..lake.query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_value,
)
from ..lake.query.forms import FormError
from .over_optimisation import CURVES, curve_panels, curve_rows
from .results import deciding_results, result_line
from .run_report import Report, drawn_report
from .section import Section


def comparison_report(
    runs: Sequence[RunReader], found: Sequence[Result], *, together: bool
) -> Report:
    """Return the report of runs whose results are `found`, averaged by method if `together`.

    Raises:
        FormError: if it is one run, or no two of them have a prompt in common.
    """
    names = [run.folder.name for run in runs]
    if len(set(names)) < 2:  # noqa: PLR2004 -- to be compared
        raise FormError(
            f"compare --report needs several runs: `lpfloop report {names[0]}` writes the "
            "report of one"
        )
    verdicts = pairwise_verdicts(found)
    if not any(set(each.before.runs) != set(each.after.runs) for each in verdicts):
        raise FormError(
            f"compare --report: {', '.join(names)} share nothing that could be compared: no prompt "
            "was measured in two of them by the same judge; give runs with the same "
            "held-out prompts"
        )
    lines = [*figure_lines(found, found), *spent_lines(found)]
    return drawn_report(
        "comparison.html",
        runs,
        f"compare {' '.join(names)} --report FILE",
        [_results(runs), _curves(runs)],
        title=f"Runs {', '.join(names)}",
        heading=f"Held-out prompts (test): mean ± standard error over {errors_over(found)}",
        columns=("", *(result_name(result, together=together) for result in found)),
        rows=[(label, *cells) for label, cells in lines],
        remarks=list(comparison_remarks(found)),
        verdicts=[_row(each, together=together) for each in verdicts],
        apart=[result_name(result, together=together) for result in apart(found)],
    )


def _results(runs: Sequence[RunReader]) -> Section:
    """Return the figure that compares models over the iterations, a line for each run."""
    measured = [each for each in map(deciding_results, runs) if each.rows]
    figures = {each.rows[0].figure for each in measured}
    panels = [
        Lines(
            series=[result_line(each.run, list(each.figure(figure).values())) for each in own],
            title=f"{figure_name(figure).capitalize()} over the iterations",
            x_label="iteration",
            y_label=f"{figure_label(figure)}, {own[0].split}",
            whole_x=True,
        )
        for figure in sorted(figures)
        for own in [[each for each in measured if each.rows[0].figure == figure]]
    ]
    frames = [each.frame.insert_column(0, pl.lit(each.run).alias("run")) for each in measured]
    return Section(
        name="results",
        title="Results over the iterations",
        reading="A line for each run, in its band of 95 % confidence.",
        command=f"lpfloop status {runs[0].folder.name} --wide",
        tables={"results": pl.concat(frames, how="diagonal_relaxed")} if frames else {},
        panels=panels,
        missing="no model was measured",
    )


def _curves(runs: Sequence[RunReader]) -> Section:
    rows = pl.concat([pl.DataFrame(schema=CURVES), *map(curve_rows, runs)])
    return Section(
        name="over-optimisation",
        title="Over-optimisation: proxy rewards against true quality",
        reading=(
            "Where a reward rises over steps, samples or iterations and the win-rate falls, the "
            "reward is over-optimised: an earlier step or a smaller n is the better one."
        ),
        command=f"lpfloop report {runs[0].folder.name} --plots FOLDER",
        tables={"curves": rows},
        panels=list(curve_panels(rows)),
        missing="no curve has two points with a reward or a win-rate",
    )


def _row(each: PairwiseVerdict, *, together: bool) -> Sequence[str]:
    return (
        result_name(each.after, together=together),
        result_name(each.before, together=together),
        " ".join(_answer(each)),
        figure_name(each.metric),
        _change(each),
        f"{each.decision.n:,}",
    )


def _answer(each: PairwiseVerdict) -> Iterator[str]:
    decision = each.decision
    worse = decision.high is not None and decision.high < 0
    yield "worse" if worse else decision.answer
    if decision.needed is not None:
        yield f"(about {decision.needed:,} prompts would decide)"


def _change(each: PairwiseVerdict) -> str:
    decision = each.decision
    before, after = (format_value(each.metric, v) for v in (decision.before, decision.after))
    change = f"{before} → {after} %, {format_difference(each.metric, decision.difference)}"
    return f"{change} {format_bounds(each.metric, decision.low, decision.high)}".rstrip()
