# pyright: basic
"""Judged answers of a file, for the check of a critic: ratings as `lpfloop critique` prints them.

A row has `ratings` by aspect, a `reward`, or both, and a `label`: whether the answer is right. Rows
without a label are counted.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from ...stores.records import SCORED
from ..data.files import InputError, Row, RowError, placed_rows
from ..data.rating_scale import number
from ..data.row_fields import object_of
from ..data.row_texts import optional_text
from .critic_answers import AnswerDraw, split_up
from .critic_check import LABEL, AnswerGroup

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
            rows.append(_judged(row, place))
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
    whole = AnswerGroup(against=LABEL, names={}, there=judged.height, frame=judged)
    return [whole, *split_up(judged, draw, LABEL, judged)]


def _judged(row: Row, place: str) -> dict[str, Any]:
    ratings = {name: _level(name, value) for name, value in _ratings(row).items()}
    reward, status = _reward(row), optional_text(row, "status")
    if not ratings and reward is None and status is None:
        raise RowError("lacks both 'ratings' and 'reward'")
    read = [rating for rating in ratings.values() if rating is not None]
    scored = bool(read) and status in (None, SCORED)
    return {
        **{name: optional_text(row, name) for name in NAMES},
        "cluster": optional_text(row, "cluster") or optional_text(row, "prompt_id") or place,
        "iteration": _iteration(row),
        "reference": _truth(row, "reference_used"),
        "aspects": [{"name": name, "rating": rating} for name, rating in ratings.items()],
        "unread": not scored and (bool(ratings) or status is not None),
        "rating": fmean(read) if scored else None,
        "passed": min(read) == 1 if scored else None,
        "reward": reward,
        "right": _label(row),
    }


def _ratings(row: Row) -> Row:
    value = row.get("ratings")
    return Row() if value is None else object_of(value, "ratings")


def _level(aspect: str, value: object) -> int | None:
    level = number(value)
    if value is not None and level not in LEVELS:
        raise RowError(f"'ratings.{aspect}' must be -1, 0, 1 or null")
    return None if level is None else int(level)


def _reward(row: Row) -> float | None:
    value = row.get("reward")
    if value is not None and number(value) is None:
        raise RowError("'reward' must be a number")
    return number(value)


def _iteration(row: Row) -> int | None:
    value = row.get("iteration")
    if value is not None and type(value) is not int:
        raise RowError("'iteration' must be a whole number")
    return value


def _truth(row: Row, name: str) -> bool | None:
    value = row.get(name)
    if value is not None and not isinstance(value, bool):
        raise RowError(f"{name!r} must be true or false")
    return value


def _label(row: Row) -> bool | None:
    value = row.get(LABEL)
    if value is None or isinstance(value, bool):
        return value
    if number(value) in LEVELS:
        return number(value) == 1
    raise RowError(f"{LABEL!r} must be true or false, or a rating: 1, 0 or -1")
