# pyright: basic
"""Judged answers of a file, for the check of a critic: ratings as `lpfloop critique` prints them.

A row has `ratings` by aspect, a `reward`, or both, and a `label`: whether the answer is right. Rows
without a label are counted.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import polars as pl

from ...stores.records import SCORED
from ..data.files import InputError, Row, RowError, placed_rows
from ..data.rating_scale import number
from ..data.row_fields import object_of
from ..data.row_texts import optional_text
from .critic_answers import AnswerDraw, answer_groups
from .critic_check import LABEL, AnswerGroup

T = TypeVar("T")
NAMES = ("task", "kind", "family", "split")
LEVELS = (-1, 0, 1)
_SCHEMA: Mapping[str, Any] = {
    **dict.fromkeys((*NAMES, "cluster"), pl.String),
    "iteration": pl.Int64,
    "reference": pl.Boolean,
    "aspects": pl.List(pl.Struct({"name": pl.String, "rating": pl.Int64})),
    "unread": pl.Boolean,
    "rating": pl.Float64,
    "passed": pl.Boolean,
    "reward": pl.Float64,
    "right": pl.Boolean,
}


def labelled_groups(path: Path, draw: AnswerDraw) -> list[AnswerGroup]:
    """Return the groups of a file's judged answers.

    Raises:
        InputError: naming the file, the place and the field that cannot be used.
    """
    rows = list[dict[str, Any]]()
    for place, row in placed_rows(path):
        try:
            rows.append(_judged_row(row, place))
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
    judged = pl.DataFrame(rows, schema=_SCHEMA)
    if draw.split is not None:
        judged = judged.filter(pl.col("split") == draw.split)
    if judged["right"].is_null().all():
        raise InputError(
            f"{path}: every row lacks {LABEL!r}: set it to true if the answer is right, else to "
            "false"
        )
    return list(answer_groups(judged, draw, LABEL, judged))


def _judged_row(row: Row, place: str) -> dict[str, Any]:
    given = object_of(row["ratings"], "ratings") if row.get("ratings") is not None else Row()
    ratings = {
        name: _typed_field(given, name, f"ratings.{name}", "-1, 0, 1 or null", _level)
        for name in given
    }
    reward = _typed_field(row, "reward", "reward", "a number", number)
    status = optional_text(row, "status")
    if not ratings and reward is None and status is None:
        raise RowError("lacks both 'ratings' and 'reward'")
    read = [rating for rating in ratings.values() if rating is not None]
    scored = bool(read) and status in (None, SCORED)
    label = "true or false, or a rating: 1, 0 or -1"
    return {
        **{name: optional_text(row, name) for name in NAMES},
        "cluster": optional_text(row, "cluster") or optional_text(row, "prompt_id") or place,
        "iteration": _typed_field(row, "iteration", "iteration", "a whole number", _whole),
        "reference": _typed_field(row, "reference_used", "reference_used", "true or false", _truth),
        "aspects": [{"name": name, "rating": rating} for name, rating in ratings.items()],
        "unread": not scored and (bool(ratings) or status is not None),
        "rating": fmean(read) if scored else None,
        "passed": min(read) == 1 if scored else None,
        "reward": reward,
        "right": _typed_field(row, LABEL, LABEL, label, _right),
    }


def _typed_field(
    row: Row, name: str, where: str, says: str, read: Callable[[Any], T | None]
) -> T | None:
    """Return a field that may be null, as `read` gives it; None of that refuses the row."""
    value = row.get(name)
    found = None if value is None else read(value)
    if value is not None and found is None:
        raise RowError(f"{where!r} must be {says}")
    return found


def _level(value: Any) -> int | None:
    level = number(value)
    return int(level) if level in LEVELS else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _right(value: Any) -> bool | None:
    level = _level(value)
    return _truth(value) if level is None else level == 1
