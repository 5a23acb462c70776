"""One iteration against another: gains and losses, prompt by prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...stores.lake import RunReader
from ..data.splits import HELD_OUT
from ..lake.query.duckdb_rows import among
from ..lake.query.figures import shown_split
from ..lake.query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_level,
    format_value,
)
from ..lake.query.tables import FEW, rows
from ..lake.trace.diff import DiffRequest, diff
from ..lake.trace.word_diff import word_diff
from .page_query import number
from .viewing import Viewing

MOST = 50
"""So many changed prompts are listed."""


@dataclass(frozen=True, slots=True)
class DiffPages:
    """The comparison of two iterations of a run."""

    viewing: Viewing

    def routes(self) -> list[Route]:
        """Return its address."""
        return [Route("/runs/{run}/diff", self.one)]

    def one(self, request: Request) -> Response:
        """Show how the answers of one iteration changed until another."""
        query = request.query_params
        with self.viewing.run(request) as run:
            request_of = DiffRequest(
                before=number("from", query.get("from") or None),
                after=number("to", query.get("to") or None),
                benchmark=shown_split(run, query.get("split") or None) or HELD_OUT,
            )
            found = diff(run, request_of)
            shown = found.changes.head(MOST)
            answers = texts(run, shown)
            rows = [_with_spans(row, answers) for row in shown.iter_rows(named=True)]
            iterations = sorted({stage.iteration for stage in run.journal.stages()})
            name = run.folder.name
        return self.viewing.page(
            "diff.html",
            run=name,
            found=found,
            wanted=request_of,
            summary=[_add_texts(row) for row in found.summary.to_dicts()],
            rows=rows,
            iterations=iterations,
            total=found.changes.height,
        )


def _add_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a row of the summary the texts that a page shows."""
    figure = row["metric"]
    level = row["level"]
    return {
        **row,
        "label": figure_label(figure),
        "told_before": format_value(figure, row["before"]),
        "told_after": format_value(figure, row["after"]),
        "told_change": format_difference(figure, row["difference"]),
        "told_bounds": format_bounds(figure, row["low"], row["high"]),
        "told_level": "" if level is None else f"one-sided level {format_level(level)} per bound",
    }


def texts(run: RunReader, shown: pl.DataFrame) -> dict[str, str]:
    """Return the answers of both sides to prompts that changed, by id."""
    sides = [shown[f"candidate_{side}"].drop_nulls() for side in ("before", "after")]
    where = [
        among("prompt_id", shown["prompt_id"].unique().to_list()),
        among("candidate_id", pl.concat(sides).to_list()),
    ]
    found = rows(run, "candidates", columns=("candidate_id", "text"), where=where, limit=FEW)
    return dict(found.collect().iter_rows())


def _with_spans(row: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, Any]:
    """Return a changed prompt with its second answer as changes of the first."""
    before, after = (answers.get(row[f"candidate_{side}"], "") for side in ("before", "after"))
    return {**row, "label": figure_name(row["metric"]), "spans": word_diff(before, after)}
