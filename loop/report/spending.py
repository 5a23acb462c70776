# pyright: basic
"""Where time, tokens and money went, and which work a resume did not have to do again.

Everything here is read from the journal: the sums of each stage's units, which count a unit once,
and its events, which record how many units of a stage were done when an attempt began it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ...stores.journal_reader import Reader, StageState, read_cost
from ...stores.lake import RunReader
from ...stores.side_evals import measured_beside
from ..evaluation.panels import Bars, Heights, Panel
from .report_plot import ReportPlot, names_of
from .run_rows import are_several, none_made, rows_of, stacked

START, STAGE = "start", "stage"
"""The events of a daemon that starts, and of a stage that it begins to pay for."""
BESIDE = "beside the loop"
"""The label of side evals, which are not part of the loop."""
HOUR = 3600
UNITS = {
    "seconds": ("hours", 1 / HOUR),
    "tokens": ("thousand tokens", 1 / 1000),
    "money": ("US dollars", 1.0),
}
TITLES = {
    "seconds": "Time (side by side counts twice)",
    "tokens": "Tokens, read and written",
    "money": "Money",
}
READING = (
    "The tallest part of a bar is what to make cheaper first; what a resume found done is work "
    "that a crash, or a stop, did not cost again."
)


def spending_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of the cost of each iteration's stages, and of units re-used by resumes."""
    rows = rows_of(runs, spending_rows)
    stages = rows.filter(pl.col("attempt").is_null())
    spent = [_spent(stages, name) for name in UNITS if stages.height and (stages[name] > 0).any()]
    return ReportPlot(
        name="spending",
        title="Time, tokens and money",
        reading=READING,
        command=f"lpfloop status {names_of(runs)[0]} --json",
        rows=rows,
        panels=[*spent, *_resumes(rows)],
        missing="" if rows.height else none_made(runs, "stage"),
        notes=[note for run in runs for note in _notes(run)],
    )


def spending_rows(run: RunReader) -> pl.DataFrame:
    """Return the cost of each stage; and for each resume, how many of its units were done.

    `attempt` is null in the rows of the first kind; a resume's are `found` (done when it began)
    and `made` (by it).
    """
    states = run.journal.stages()
    rows = [_stage_row(state) for state in states]
    return pl.DataFrame([*rows, *_attempts(run.journal, states)], schema=_SCHEMA)


_SCHEMA = {
    "iteration": pl.Int64,
    "stage": pl.String,
    "verb": pl.String,
    "attempt": pl.Int64,
    "planned": pl.Int64,
    "done": pl.Int64,
    "found": pl.Int64,
    "made": pl.Int64,
    "seconds": pl.Float64,
    "tokens": pl.Int64,
    "calls": pl.Int64,
    "retries": pl.Int64,
    "judge_calls": pl.Int64,
    "money": pl.Float64,
}


def _stage_row(state: StageState) -> dict[str, Any]:
    totals = state.totals
    counts = {name: int(totals.get(name, 0)) for name in ("calls", "retries", "judge_calls")}
    return {
        **_named(state),
        "planned": state.planned,
        "done": state.done,
        "seconds": state.seconds,
        "tokens": int(totals.get("tokens", 0) + totals.get("prompt_tokens", 0)),
        "money": float(totals.get("money", 0.0)),
        **counts,
    }


def _named(state: StageState) -> dict[str, Any]:
    verb = BESIDE if measured_beside(state.stage) else state.stage.partition(":")[0]
    return {"iteration": state.iteration, "stage": state.stage, "verb": verb}


def _attempts(journal: Reader, states: Sequence[StageState]) -> list[dict[str, Any]]:
    """Return the units that each attempt after the first found done, and those that it made.

    A stage that no later attempt began keeps its count.
    """
    begun = _begun(journal)
    last = max((attempt for each in begun.values() for attempt in each), default=0)
    rows = list[dict[str, Any]]()
    for attempt in range(2, max(last, _starts(journal)) + 1):
        for state in states:
            each = begun.get((state.iteration, state.stage), {})
            before = any(number < attempt for number in each)
            found = _done_at(each, attempt, state.done) if before else 0
            made = (_done_at(each, attempt + 1, state.done) - found) if attempt in each else 0
            if found or made:
                rows.append({**_named(state), "attempt": attempt, "found": found, "made": made})
    return rows


def _starts(journal: Reader) -> int:
    return len(journal.events(START))


def _begun(journal: Reader) -> dict[tuple[int, str], dict[int, int]]:
    """Return how many units of a stage were done when attempts began it, by attempt."""
    begun: dict[tuple[int, str], dict[int, int]] = {}
    attempt = 0
    for _, kind, detail in journal.all_events():
        if kind == START:
            attempt += 1
        elif kind == STAGE:
            told = json.loads(detail)
            each = begun.setdefault((told["iteration"], told["stage"]), {})
            each.setdefault(max(1, attempt), told["done"])
    return begun


def _done_at(begun: Mapping[int, int], attempt: int, done: int) -> int:
    """Return how many units of a stage were done when this attempt, or the next one, began it."""
    later = [number for number in begun if number >= attempt]
    return begun[min(later)] if later else done


def _spent(stages: pl.DataFrame, name: str) -> Bars:
    unit, scale = UNITS[name]
    if name == "seconds" and stages[name].sum() < HOUR:
        unit, scale = "minutes", 1 / 60
    scaled = stages.filter(pl.col(name) > 0).with_columns(pl.col(name) * scale)
    return stacked(scaled, "verb", name, title=TITLES[name], y_label=unit)


def _resumes(rows: pl.DataFrame) -> list[Panel]:
    """Return the panel of the units that resumes re-used and made, if there were any."""
    attempts = rows.filter(pl.col("attempt").is_not_null())
    if attempts.is_empty():
        return []
    sums = attempts.group_by("run", "attempt").agg(pl.col("found", "made").sum())
    sums = sums.sort("run", "attempt")
    several = are_several(rows)
    names = [f"{run}: {n}" if several else str(n) for run, n, *_ in sums.iter_rows()]
    return [
        Bars(
            groups=names,
            parts=[
                Heights(label="found done", values=sums["found"].to_list()),
                Heights(label="made", values=sums["made"].to_list()),
            ],
            title="Units at each resume",
            x_label="attempt",
            y_label="units",
            stacked=True,
        )
    ]


def _notes(run: RunReader) -> list[str]:
    """Return a note on wasted requests, which were under way when a process died."""
    lost = read_cost(run.journal.meta("abandoned") or "{}")
    if not (lost.tokens or lost.money):
        return []
    money = f", {lost.money:.2f} US dollars" if lost.money else ""
    told = (
        f"{run.folder.name}: at most {lost.tokens:,} tokens{money} were under way when a process "
        "died, and count as spent"
    )
    return [told]
