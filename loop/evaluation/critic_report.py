# pyright: basic
"""The report of a critic check: tables for people, rows for programs, and distributions.

A distribution counts right and wrong answers by mean rating, and by reward in twenty intervals of
equal width: RLRF's Figures 2 and 3.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from ..data.sanitize import one_line
from ..data.text_wrap import print_wrapped
from .critic_check import ESTIMATES, PREFERENCES, AnswerGroup, CriticFigures
from .figure_tables import measure_columns, measure_fields
from .figure_tables import print_figures as print_table

NAME = 40
COUNTS = {"there": "there", "n": "checked", "unscored": "unscored", "unlabelled": "unlabelled"}
BINS = 20
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
    print_table(console, names, [*counts, *estimates])
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

    The intervals of rewards are the same for all groups, so that they can be compared.
    """
    single = [group for group in groups if group.against != PREFERENCES]
    rewards = pl.concat([group.frame["reward"] for group in single]).drop_nulls()
    edges = _edges(rewards)
    names = dict.fromkeys(name for group in single for name in group.names)
    rows = [
        {"against": group.against, "group": group.title, **dict.fromkeys(names), **group.names}
        | dict(zip(DISTRIBUTION, values, strict=True))
        for group in single
        for values in (*_of_ratings(group.frame), *_of_rewards(group.frame, edges))
    ]
    schema = {"against": pl.String, "group": pl.String, **DISTRIBUTION}
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)


Bar = tuple[str, bool, float, float, int, float]
"""The fields of a row of a distribution."""


def _of_ratings(frame: pl.DataFrame) -> Iterator[Bar]:
    rated = frame.filter(pl.col("right").is_not_null() & pl.col("rating").is_not_null())
    values = rated["rating"].unique().sort().to_list()
    for right, answers in _by_truth(rated):
        counts = dict(answers["rating"].value_counts().iter_rows())
        for bar in _shares((v, v, counts.get(v, 0)) for v in values):
            yield "rating", right, *bar


def _of_rewards(frame: pl.DataFrame, edges: Sequence[float]) -> Iterator[Bar]:
    scored = frame.filter(pl.col("right").is_not_null() & pl.col("reward").is_not_null())
    for right, answers in _by_truth(scored):
        counts, _ = np.histogram(answers["reward"].to_numpy(), bins=edges)
        bars = zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
        for bar in _shares(bars):
            yield "reward", right, *bar


def _by_truth(labelled: pl.DataFrame) -> Iterator[tuple[bool, pl.DataFrame]]:
    for right in (True, False):
        answers = labelled.filter(pl.col("right") == right)
        if answers.height:
            yield right, answers


def _shares(bars: Iterable[tuple[float, float, int]]) -> Iterator[tuple[float, float, int, float]]:
    """Add to each count its share of all."""
    found = list(bars)
    total = sum(count for *_, count in found)
    for low, high, count in found:
        yield low, high, count, count / total


def _edges(rewards: pl.Series) -> list[float]:
    if rewards.is_empty():
        return [0.0, 1.0]
    values = rewards.to_numpy()
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high if high > low else low + 1, BINS + 1).tolist()
