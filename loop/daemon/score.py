"""The score of an iteration's policy, which is reported after its evaluation."""

from contextlib import closing

from ...stores.journal_file import JournalError
from ...stores.lake import RunReader
from ...stores.records import PolicyVerdict
from ...stores.sealed import DamagedError
from ..data.splits import DEV
from ..evaluation.checkpoint_history import CheckpointHistory
from ..lake.query.figures import deciding_of, shown_split
from ..lake.query.format_figures import BRIEF_SPLITS, figure_label, format_difference, format_value
from ..lake.query.model_figures import RunResults, run_results
from ..lake.query.run_verdicts import verdicts_of
from ..run.run import Run

MOST_TASKS = 4
"""A policy's score is shown for each task if there are at most so many."""


def report_score(run: Run, iteration: int, course: CheckpointHistory) -> None:
    """Report how good M_t is on held-out prompts, and whether the dev prompts accept it.

    A damaged file of earlier rows costs this report, not the run.
    """
    try:
        _report(run, iteration, course)
    except (DamagedError, JournalError) as damage:
        run.reporter.note(
            f"M_{iteration} has no score here: {damage}", "score", iteration=iteration
        )


def _report(run: Run, iteration: int, course: CheckpointHistory) -> None:
    with closing(RunReader(run.store.folder)) as reader:
        split = shown_split(reader)
        figure = None if split is None else deciding_of(reader, split)
        if split is None or figure is None:
            return
        results = run_results(reader, split=split, by=("all", "task"), figure=figure)
        dev = [row for row in verdicts_of(reader, iteration, DEV) if row.scope == "all"]
    own = results.figure(figure).get(iteration)
    if own is None:
        return
    label = f"{BRIEF_SPLITS.get(split, split)} {figure_label(figure)} "
    label += format_value(figure, own.value)
    if own.change is not None and iteration != own.against:
        label += f", {format_difference(figure, own.change)} since M_{own.against}"
    tasks = _tasks(results, figure, iteration)
    if 1 < len(tasks) <= MOST_TASKS:
        each = (f"{name} {format_value(figure, value)}" for name, value in tasks.items())
        label += f" ({', '.join(each)})"
    accepted = None if course.standing is None else course.standing.accepted
    run.reporter.note(
        label + _decision(dev, accepted=accepted),
        "score",
        iteration=iteration,
        split=split,
        figure=figure,
        n=own.n,
        value=own.value,
        low=own.low,
        high=own.high,
        change=own.change,
        change_low=own.change_low,
        change_high=own.change_high,
        accepted=accepted,
        dev={row.against: row.difference for row in dev},
        tasks=tasks,
    )


def _tasks(results: RunResults, figure: str, iteration: int) -> dict[str, float]:
    return {
        row.name: row.value
        for row in results.rows
        if (row.scope, row.figure, row.iteration) == ("task", figure, iteration)
    }


def _decision(dev: list[PolicyVerdict], *, accepted: bool | None) -> str:
    """Return whether M_t is accepted, by its difference to the best policy on dev prompts."""
    best = next((row for row in dev if row.against == "best"), None)
    if accepted is None or best is None:
        return ""
    difference = format_difference(best.figure, best.difference)
    word = "accepted" if accepted else "rejected"
    return f"; {word} (dev {difference} to M_{best.other_iteration})"
