"""The tables of a report: the models by role, and the results of each iteration."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import polars as pl

from ...stores.lake import RunReader
from ...stores.records import PolicyVerdict
from ..data.splits import DEV, HELD_OUT
from ..lake.query.best_model import NOT_BETTER
from ..lake.query.figures import NotMeasuredError
from ..lake.query.model_figures import ModelFigure, RunResults, run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import IterationVerdict, run_verdict, told_verdict
from ..lake.query.runs import NoSuchRunError
from ..lake.query.told_figures import (
    figure_label,
    split_name,
    told_change,
    told_interval,
    told_levels,
    told_of,
)
from .html_elements import Content, Html, element, joined, prose, table

PLAN = "plan"
NONE = "-"
COUNTED = ("candidates", "critiques", "pairs", "demonstrations")
IF_ANY = "unpaired_answers"
"""Rows that only KTO has."""
ROLES = ("policy", "critic", "reward")
SPLITS = {"train": "to train on", DEV: "to decide by (dev)", HELD_OUT: "held out (test)"}


def roles_section(run: RunReader) -> Html:
    """Return which model plays which role, and which prompts there are."""
    rows = [*_roles(run), *_prompts(run)]
    return element(
        "section",
        element("h2", "Who plays which role"),
        element("div", table(("Role", "Who", "For"), rows), class_="text"),
    )


def _roles(run: RunReader) -> list[tuple[str, str, str]]:
    """Return the roles of a run's plan; without one, those that its configuration names."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    plans = cast("list[dict[str, Any]]", run.journal.events(PLAN))
    recipe = plans[-1]["recipe"] if plans else config.get("recipe", {}).get("name", NONE)
    turns = config.get("iterations", NONE)
    head = ("recipe", str(recipe), f"iterations: {turns}, seed {config.get('seed', NONE)}")
    if not plans:
        named = [(name, config.get(name, {})) for name in ROLES]
        return [head, *((name, str(of.get("model") or NONE), "") for name, of in named)]
    return [head, *map(_planned, plans[-1]["roles"])]


def _planned(role: Mapping[str, Any]) -> tuple[str, str, str]:
    engine = f" ({role['engine']})" if role["engine"] else ""
    return role["role"], f"{role['model']}{engine}", ", ".join(role["asked_by"])


def _prompts(run: RunReader) -> Iterator[tuple[str, str, str]]:
    counts = (
        run.scan("prompts", columns={"prompt_id", "split", "task"})
        .group_by("split", "task")
        .len()
        .sort("split", "task")
        .collect(engine="streaming")
    )
    for split, said in SPLITS.items():
        own = counts.filter(pl.col("split") == split)
        if own.height:
            tasks = ", ".join(f"{task} {n:,}" for task, n in own.select("task", "len").iter_rows())
            yield "prompts", f"{own['len'].sum():,} {said}", tasks


def iterations_section(run: RunReader) -> Html:
    """Return each iteration's results with their change, verdicts, and counts."""
    counted = [*COUNTED, *([IF_ANY] if any(run.journal.parts(table=IF_ANY)) else ())]
    return element(
        "section",
        element("h2", "Iterations"),
        _results(run),
        _verdicts(run),
        element("h3", "What each iteration made"),
        table(("", *counted, "hours"), _counts(run, counted)),
        prose(_commands(run.folder.name)),
        id="iterations",
    )


def _commands(name: str) -> str:
    return f"The same in a terminal: `lpfloop status {name}`, `lpfloop verdict {name}`"


def _results(run: RunReader) -> Html:
    """Return a line for each figure of each task, with a column for each model."""
    try:
        results = run_results(run)
    except NotMeasuredError as error:
        return element("p", f"{error}.", class_="missing")
    if not results.rows:
        return element("p", "Nothing was measured yet.", class_="missing")
    alone = len(results.models) == 1
    told = results.told.iteration
    change = "95 %" if alone else f"M_{told} since M_{results.models[0].iteration}"
    head = ["", *(", ".join((f"M_{m.iteration}", *m.marks)) for m in results.models), change]
    rows = [row for part in _parts(results) for row in _lines(part, results, alone=alone)]
    caption = f"Results on {split_name(results.split or HELD_OUT)}; a dash: not measured"
    levels = told_levels(row for row in results.rows if row.iteration == told)
    note = [] if levels is None else [element("p", f"{levels[0].upper()}{levels[1:]}.")]
    return joined([element("h3", caption), table(head, rows), *note])


def _parts(results: RunResults) -> list[list[ModelFigure]]:
    found: dict[tuple[str, str], list[ModelFigure]] = {}
    for row in results.rows:
        found.setdefault((row.scope, row.name), []).append(row)
    return list(found.values())


def _lines(
    part: Sequence[ModelFigure], results: RunResults, *, alone: bool
) -> Iterator[Sequence[Content]]:
    title = part[0].name or "all"
    yield (element("b", f"{title}, {max(r.n for r in part):,}"), *[""] * (len(results.models) + 1))
    for figure in dict.fromkeys(row.figure for row in part):
        of = {row.iteration: row for row in part if row.figure == figure}
        last = of.get(results.told.iteration)
        change = told_interval(last) if alone else told_change(last)
        values = [
            NONE if (r := of.get(m.iteration)) is None else told_of(r) for m in results.models
        ]
        yield (figure_label(figure), *values, _coloured(change, last))


def _coloured(text: str, row: ModelFigure | None) -> Content:
    """Mark a sure change of a figure of which more is better."""
    low, high = (None, None) if row is None else (row.change_low, row.change_high)
    if row is None or not text or low is None or high is None or low <= 0 <= high:
        return text
    if row.figure in NOT_BETTER:
        return text
    return element("span", text, class_="rose" if low > 0 else "fell")


def _verdicts(run: RunReader) -> Html:
    """Return the verdicts on each policy; empty without verdicts."""
    try:
        found = run_verdict(run, checkpoints(run))
    except NoSuchRunError:
        return Html("")
    head = ("", "dev, against the best", "held-out, since M_0", "decided")
    rows = [
        (
            f"M_{each.checkpoint.iteration}",
            _verdict(each.of(DEV, "best")),
            _verdict(each.of(HELD_OUT, "initial")),
            _decided(each),
        )
        for each in found.iterations
    ]
    shown = element("div", table(head, rows), class_="text")
    return joined([element("h3", "What was decided"), shown])


def _verdict(row: PolicyVerdict | None) -> str:
    if row is None:
        return NONE
    return f"{row.answer}: {told_verdict(row)}"


def _decided(found: IterationVerdict) -> str:
    return NONE if found.standing is None else found.standing.reason


def _counts(run: RunReader, counted: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give how many rows each iteration made, and in how many hours of its stages."""
    stages = run.journal.stages()
    for number in sorted({stage.iteration for stage in stages}):
        rows = [
            sum(part.rows for part in run.journal.parts(table=name, iteration=number))
            for name in counted
        ]
        seconds = sum(stage.seconds for stage in stages if stage.iteration == number)
        yield (str(number), *(f"{n:,}" if n else NONE for n in rows), f"{seconds / 3600:.2f}")
