"""A comparison of two measurements, and its page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from .html_page import page_html
from .page import Box, Grid, Page, PageSection
from .terminal_page import page_text
from .word_diff import word_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """`summary` has a row for each task and metric; `changes` one for each changed value."""

    before: str
    after: str
    benchmark: str
    summary: pl.DataFrame
    changes: pl.DataFrame

    @property
    def document(self) -> dict[str, object]:
        """The comparison as JSON data."""
        return {
            "before": self.before,
            "after": self.after,
            "benchmark": self.benchmark,
            "summary": self.summary.to_dicts(),
            "changes": self.changes.to_dicts(),
        }

    def __str__(self) -> str:
        return page_text(self.page())

    def _repr_html_(self) -> str:
        return page_html(self.page())

    def page(self, limit: int = 10) -> Page:
        """Return the page, with at most `limit` changes."""
        return Page(
            title=f"{self.benchmark}: {self.before} → {self.after}",
            sections=(_summary_section(self.summary), _changes_section(self.changes, limit)),
        )


def _summary_section(summary: pl.DataFrame) -> PageSection:
    columns = ("task", "metric", "n", "before", "after", "change", "95%", "up", "down", "p")
    rows = [
        (
            row["task"] or "",
            row["metric"],
            str(row["n"]),
            f"{row['before']:.3f}",
            f"{row['after']:.3f}",
            f"{row['difference']:+.3f}",
            "" if row["low"] is None else f"{row['low']:+.2f}, {row['high']:+.2f}",
            str(row["better"]),
            str(row["worse"]),
            "" if row["p_value"] is None else f"{row['p_value']:.2g}",
        )
        for row in summary.iter_rows(named=True)
    ]
    return PageSection(heading="", grid=Grid(columns=columns, rows=tuple(rows)))


def _changes_section(changes: pl.DataFrame, limit: int) -> PageSection:
    shown, up = changes.head(limit), changes.filter(pl.col("change") > 0).height
    boxes = [
        Box(
            title=f"{row['metric']} {_flip(row)} {row['prompt_id']}",
            text=word_diff(row["answer_before"] or "", row["answer_after"] or ""),
        )
        for row in shown.iter_rows(named=True)
        if "answer_before" in row
    ]
    columns = ("task", "metric", "change", "tokens", "prompt")
    rows = [
        (
            row["task"] or "",
            row["metric"],
            _flip(row),
            ""
            if row["length_before"] is None or row["length_after"] is None
            else f"{row['length_before']:.0f} → {row['length_after']:.0f}",
            row["prompt_id"],
        )
        for row in shown.iter_rows(named=True)
    ]
    return PageSection(
        heading=f"{changes.height} values changed, {up} of them up; the largest first",
        boxes=tuple(boxes),
        grid=Grid(columns=columns, rows=tuple(rows)),
        lines=("`lpfloop show PROMPT` shows both answers and their critiques",) if rows else (),
    )


def _flip(row: Mapping[str, Any]) -> str:
    return f"{row['before']:g} → {row['after']:g}"
