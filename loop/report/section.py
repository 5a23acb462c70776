# pyright: basic
"""A section of a report: panels with the rows that they are drawn from, and how to read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ..evaluation.plots import Lines, Panel, Series

MOST_SERIES = 8
"""A panel of more lines than colours cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Panels, and the tables that they are drawn from by name; `missing` says why there are none.

    `reading` is how to read the panels, `command` prints the rows behind them.
    """

    name: str
    """The name of its files, and its place in the page."""
    title: str
    reading: str
    command: str
    tables: Mapping[str, pl.DataFrame]
    panels: Sequence[Panel]
    missing: str


def series_by(
    rows: pl.DataFrame, label: str, y: str, *, x: str = "iteration", band: Sequence[str] = ()
) -> list[Series]:
    """Return a line for each value of `label`; of many, those that go furthest from 0.

    `band` names the columns of the lower and the upper end of the band around a line, if every row
    of the line has both.
    """
    found = list[Series]()
    known = rows.drop_nulls(y).sort(label, x)
    for (name,), part in known.group_by(label, maintain_order=True):
        whole = band and not any(part[column].null_count() for column in band)
        low, high = (part[column].to_list() for column in band) if whole else ((), ())
        found.append(
            Series(label=str(name), x=part[x].to_list(), y=part[y].to_list(), low=low, high=high)
        )
    found.sort(key=lambda one: -max(map(abs, one.y)))
    return sorted(found[:MOST_SERIES], key=lambda one: one.label)


def over_iterations(
    rows: pl.DataFrame,
    label: str,
    y: str,
    *,
    title: str,
    y_label: str,
    level: float | None = None,
    band: Sequence[str] = (),
) -> list[Panel]:
    """Return a panel of a line for each value of `label` from iteration to iteration, if any."""
    series = series_by(rows, label, y, band=band)
    panel = Lines(
        series=series, title=title, x_label="iteration", y_label=y_label, level=level, whole_x=True
    )
    return [panel] if series else []
