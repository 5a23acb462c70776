"""A comparison of two measurements, and its page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ...data.short_id import short_id
from ..query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_level,
    format_value,
)
from ..query.vocabulary import COUNTS, RATING
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
        """Return the page, with at most `limit` changes for the worse and for the better."""
        ups, downs = pl.col("change") > 0, pl.col("change") < 0
        worse, better = self.changes.filter(downs), self.changes.filter(ups)
        return Page(
            title=f"{self.benchmark}: {self.before} → {self.after}",
            sections=(
                _summary_section(self.summary),
                _changes_section(worse, "down", limit),
                _changes_section(better, "up", limit),
            ),
        )


def _summary_section(summary: pl.DataFrame) -> PageSection:
    """Return the table of changes: of figures, or of their parts if figures are missing."""
    group = "family" if "family" in summary.columns else "task"
    columns = (group, "metric", "n", "before", "after", "change", "bounds", "up/down")
    parts = pl.col("metric").is_in(COUNTS) | pl.col("metric").str.starts_with(RATING)
    shown = summary.filter(~parts)
    left_out = sorted(set(summary["metric"]) - set(shown["metric"]))
    rows = [
        (
            row[group] or "",
            figure_label(row["metric"]),
            str(row["n"]),
            format_value(row["metric"], row["before"]),
            format_value(row["metric"], row["after"]),
            format_difference(row["metric"], row["difference"]),
            format_bounds(row["metric"], row["low"], row["high"]),
            f"{row['better']}/{row['worse']}",
        )
        for row in (shown if shown.height else summary).iter_rows(named=True)
    ]
    notes = [f"--metric or --json also tells of {', '.join(left_out)}"]
    levels = {format_level(row["level"]) for row in summary.to_dicts() if row["low"] is not None}
    sure = [f"one-sided level {' or '.join(sorted(levels))} per bound"]
    return PageSection(
        heading="",
        grid=Grid(columns=columns, rows=tuple(rows)),
        lines=(*(sure if levels else ()), *(notes if left_out and shown.height else ())),
    )


def _changes_section(changes: pl.DataFrame, way: str, limit: int) -> PageSection:
    """Return the section on changes for the worse (`down`) or the better (`up`)."""
    shown = changes.head(limit)
    boxes = [
        Box(
            title=f"{row['metric']} {_flip(row)} {row['prompt_id']}",
            text=word_diff(row["answer_before"] or "", row["answer_after"] or ""),
        )
        for row in shown.iter_rows(named=True)
        if "answer_before" in row
    ]
    families = shown["family"].null_count() < shown.height
    columns = ("family" if families else "task", "metric", "change", "tokens", "prompt")
    rows = [
        (
            row["family"] or row["task"] or "",
            figure_name(row["metric"]),
            _flip(row),
            ""
            if row["length_before"] is None or row["length_after"] is None
            else f"{row['length_before']:.0f} → {row['length_after']:.0f}",
            short_id(row["prompt_id"]),
        )
        for row in shown.iter_rows(named=True)
    ]
    return PageSection(
        heading=f"{changes.height} values went {way}; the largest change first",
        boxes=tuple(boxes),
        grid=Grid(columns=columns, rows=tuple(rows), names=len(columns)),
        lines=("`lpfloop show PROMPT` shows both answers and their critiques",) if rows else (),
    )


def _flip(row: Mapping[str, Any]) -> str:
    return f"{row['before']:g} → {row['after']:g}"
