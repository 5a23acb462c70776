# pyright: basic
"""The report of a critic check: tables for people, rows for programs, and distributions.

A distribution counts right and wrong answers by mean rating and by reward, in bins of equal width:
RLRF's Figures 2 and 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from ..data.text import one_line, print_wrapped
from ..lake.query import row_table
from .critic_check import ESTIMATES, AnswerGroup, CriticFigures
from .figure_tables import measure_columns, measure_fields

NAME = 40
COUNTS = {"there": "there", "n": "checked", "unscored": "unscored", "unlabelled": "unlabelled"}
BINS = {"rating": 9, "reward": 20}
DISTRIBUTION = {
    "score": pl.String,
    "right": pl.Boolean,
    "low": pl.Float64,
    "high": pl.Float64,
    "count": pl.Int64,
    "share": pl.Float64,
}


def print_figures(found: Sequence[CriticFigures], limit: int) -> None:
    """Print the figures in percent with their intervals, followed by the undefined ones."""
    console = Console()
    most = f"at most {limit:,} answers of a group are checked"
    print_wrapped(console, f"percent [95 % interval, by prompt]; {most}")
    counts = [(title, [f"{getattr(one, of):,}" for one in found]) for of, title in COUNTS.items()]
    estimates = measure_columns([one.estimates for one in found], ESTIMATES)
    names = [
        ("answers", [one_line(one.group, limit=NAME) for one in found]),
        ("labels", [one.against for one in found]),
    ]
    row_table.print_figures(console, names, [*counts, *estimates])
    for each in found:
        if each.remark:
            line = one_line(f"{each.group}, by {each.against}: {each.remark}", limit=200)
            print_wrapped(console, line)


def figures_frame(found: Sequence[CriticFigures]) -> pl.DataFrame:
    """Return one row a group, every figure with its interval in separate columns."""
    names = dict.fromkeys(name for each in found for name in each.names)
    return pl.DataFrame([_row(each, names) for each in found], infer_schema_length=None)


def _row(each: CriticFigures, names: Mapping[str, None]) -> dict[str, Any]:
    counts = {name: getattr(each, name) for name in COUNTS}
    row = {"against": each.against, "group": each.group, **names, **each.names, **counts}
    return row | measure_fields(each.estimates, ESTIMATES) | {"remark": each.remark}


def distributions(groups: Sequence[AnswerGroup]) -> pl.DataFrame:
    """Return the distributions of ratings and rewards of right and of wrong answers.

    The bins of a score are the same for all groups, so that they can be compared.
    """
    names = dict.fromkeys(name for group in groups for name in group.names)
    rows = [
        {"against": group.against, "group": group.title, **names, **group.names, **bar}
        for score, bins in BINS.items()
        for edges in [_edges([group.frame[score] for group in groups], bins)]
        for group in groups
        for bar in _bars(group.frame, score, edges)
    ]
    schema = {"against": pl.String, "group": pl.String, **DISTRIBUTION}
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)


def _edges(scores: Sequence[pl.Series], bins: int) -> np.ndarray:
    values = [value for column in scores for value in column.drop_nulls()]
    return np.histogram_bin_edges(values, bins=bins)


def _bars(frame: pl.DataFrame, score: str, edges: np.ndarray) -> Iterator[dict[str, Any]]:
    for right in (True, False):
        values = frame.filter(pl.col("right") == right)[score].drop_nulls()
        if values.len():
            counts = np.histogram(values.to_numpy(), bins=edges)[0].tolist()
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
                bar = {"score": score, "right": right, "low": float(low), "high": float(high)}
                yield bar | {"count": count, "share": count / values.len()}
