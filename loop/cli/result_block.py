"""The result of a run in a few lines: is its policy better, by how much, and its losses."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..data.splits import HELD_OUT
from ..lake.query.critic_scores import ALL, critic_scores
from ..lake.query.figures import deciding_of, shown_split
from ..lake.query.format_figures import (
    BRIEF_SPLITS,
    figure_label,
    format_bounds,
    format_change,
    format_difference,
    format_value,
)
from ..lake.query.model_figures import RunResults, run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import IterationVerdict, run_verdict
from ..lake.query.runs import NoSuchRunError
from ..report.run_answer import deciding_verdict

if TYPE_CHECKING:
    from ...stores.lake import RunReader
    from ...stores.records import PolicyVerdict

HEAD, INDENT = "RESULT  ", " " * 8
MOST_GROUPS = 8
"""So many tasks, and so many families that lost, are listed."""
ANSWERS = {
    "better": "M_{} is better than M_{}",
    "not better": "M_{} is not better than M_{}",
    "undecided": "M_{} against M_{} is undecided",
}


def result_lines(run: "RunReader") -> list[str]:
    """Return the result of a run: the verdict with its interval, tasks, losses, the critic.

    Empty if nothing was measured.
    """
    split = shown_split(run)
    figure = None if split is None else deciding_of(run, split)
    if split is None or figure is None:
        return []
    results = run_results(run, split=split, by=("all", "task"), figure=figure)
    made = checkpoints(run)
    found = None
    with suppress(NoSuchRunError):
        found = run_verdict(run, made)
    row = None if found is None else deciding_verdict(found, made)
    lines = [_verdict_sentence(row) if row is not None else _result_sentence(results, figure)]
    tasks = list(_tasks(results, figure))
    if 1 < len(tasks) <= MOST_GROUPS:
        lines.append("   ".join(tasks))
    if found is not None and row is not None:
        own = next(i for i in found.iterations if i.checkpoint.iteration == row.iteration)
        lines += _lost(own)
    lines += _critic(run, results.reported.iteration)
    return [f"{HEAD if not number else INDENT}{line}" for number, line in enumerate(lines)]


def _verdict_sentence(row: "PolicyVerdict") -> str:
    """Return the verdict on a policy as a sentence."""
    answer = "M_{} is worse than M_{}" if (row.high or 0) < 0 else ANSWERS[row.answer]
    before, after = (format_value(row.figure, value) for value in (row.before, row.after))
    interval = format_bounds(row.figure, row.low, row.high) or "(too few prompts for an interval)"
    return (
        f"{answer.format(row.iteration, row.other_iteration)}: {figure_label(row.figure)} {before} "
        f"-> {after} on {row.n:,} {BRIEF_SPLITS.get(row.split, row.split)} prompts, "
        f"{format_difference(row.figure, row.difference)} {interval}"
    )


def _result_sentence(results: RunResults, figure: str) -> str:
    """Return the result of a policy without a verdict as a sentence."""
    own = results.figure(figure)[results.reported.iteration]
    split = BRIEF_SPLITS.get(own.split, own.split)
    change = format_change(own)
    since = f", {change} since M_{own.against}" if change else ""
    value = format_value(figure, own.value)
    return f"M_{own.iteration}: {figure_label(figure)} {value} on {own.n:,} {split} prompts{since}"


def _tasks(results: RunResults, figure: str) -> Iterator[str]:
    """Yield the figure of each task, of the first policy and of the reported one."""
    first, last = results.models[0].iteration, results.reported.iteration
    tasks = dict.fromkeys(row.name for row in results.rows if row.scope == "task")
    for task in tasks:
        of = results.figure(figure, "task", task)
        if first in of and last in of:
            values = [of[first].value] if first == last else [of[first].value, of[last].value]
            yield f"{task} " + " -> ".join(format_value(figure, value) for value in values)


def _lost(own: IterationVerdict) -> Iterator[str]:
    """Give the families that are worse than M_0's, beyond chance."""
    lost = own.regressions()
    if lost:
        each = ", ".join(
            f"{r.name} {format_value(r.figure, r.before)} -> {format_value(r.figure, r.after)}"
            for r in lost[:MOST_GROUPS]
        )
        more = f", and {len(lost) - MOST_GROUPS} more" if len(lost) > MOST_GROUPS else ""
        yield f"worse: {each}{more}"


def _critic(run: "RunReader", iteration: int) -> Iterator[str]:
    """Give the share of the answers approved by the critic that are right, by task."""
    own = [s for s in critic_scores(run, iteration) if s.benchmark == HELD_OUT]
    shares = {s.task: s.precision for s in own if s.precision is not None}
    if ALL in shares:
        tasks = [f"{task} {100 * share:.0f} %" for task, share in shares.items() if task != ALL]
        each = f": {', '.join(tasks)}" if len(tasks) > 1 else ""
        yield f"critic precision {100 * shares[ALL]:.0f} %{each}"
