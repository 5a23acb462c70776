"""Recorded results: a file with a value for each prompt, of one model.

A row has a prompt (`prompt_id` or `id`, or its text) and a value: a boolean, a score, or a
preference as AlpacaEval stores it. Optional fields are `cluster`, `family` and `task` of the
prompt, and the answer as `output`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import cast

from ..data.files import InputError, Placed, Row, RowError, placed_rows
from ..data.prompt_rows import TEXT_FIELDS
from ..data.rating_scale import number
from ..data.row_fields import ANSWER_FIELDS
from ..data.row_texts import kind_of
from ..lake.statistics.win_rate import share_won
from .result_sources import FigureSource, names_of

KEY_FIELDS = ("prompt_id", "id", *TEXT_FIELDS)
PREFERENCE = "preference"
VALUE_FIELDS = (
    "value",
    "score",
    "correct",
    "is_correct",
    "success",
    "passed",
    "verified",
    "rating",
    "reward",
    PREFERENCE,
)
OUTPUT_FIELDS = ("output_2", *ANSWER_FIELDS)
REFERENCE = "output_1"
TRUTHS = {"true": 1.0, "false": 0.0}
ROUNDING = 1e-9
"""How far a sum of probabilities may exceed AlpacaEval's bounds, 1 and 2."""
SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """A model's value for a prompt: the mean of its values, if it has several."""

    value: float
    text: str | None
    output: str | None
    reference: str | None
    cluster: str | None
    family: str | None
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedResults:
    """The results of a file by prompt, and the counts of skipped and merged rows.

    `figure` is the field of the values. `unscored` rows lack it, `copies` equal an earlier row in
    every field, `repeated` prompts have several values.
    """

    source: FigureSource
    figure: str
    results: Mapping[str, PromptResult]
    unscored: int
    copies: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFields:
    """The fields of prompt, value and cluster, if the user names them."""

    key: str | None = None
    value: str | None = None
    cluster: str = "cluster"


def loaded(path: Path) -> list[Placed]:
    """Return the rows of a file with their places.

    Raises:
        InputError: if it cannot be read or is empty.
    """
    rows = list(placed_rows(path))
    if not rows:
        raise InputError(f"{path}: holds no rows")
    return rows


def key_field(files: Mapping[Path, Sequence[Placed]]) -> str:
    """Return the field that identifies the prompts of all files.

    Raises:
        InputError: if the files share no such field.
    """
    for name in KEY_FIELDS:
        if all(row.get(name) is not None for rows in files.values() for _, row in rows[:1]):
            return name
    path, rows = next(iter(files.items()))
    raise InputError(
        f"{', '.join(map(str, files))}: no field of {', '.join(KEY_FIELDS)} is there to tell the "
        f"prompts apart; name one with --key ({path} has {_has(rows[0][1])})"
    )


def recorded(path: Path, rows: Sequence[Placed], fields: ResultFields) -> RecordedResults:
    """Return the results of a file's rows; `fields.key` must be set.

    Raises:
        InputError: for a row that cannot be read, or if none has a value.
    """
    figure = fields.value or _value_field(path, rows[0][1])
    found: dict[str, list[PromptResult]] = {}
    seen = set[str]()
    unscored = 0
    for place, row in rows:
        written = json.dumps(row, sort_keys=True, default=str)
        if written in seen:
            continue
        seen.add(written)
        try:
            key, result = _key(row, fields.key or "id"), _result(row, figure, fields.cluster)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        if result is None:
            unscored += 1
        else:
            found.setdefault(key, []).append(result)
    if not found:
        raise InputError(f"{path}: no row has a value in {figure!r}")
    results = {key: _joined(several) for key, several in found.items()}
    return RecordedResults(
        source=FigureSource(
            path=path,
            names=names_of(row for _, row in rows),
            references={k: r.reference for k, r in results.items() if r.reference is not None},
        ),
        figure=figure,
        results=results,
        unscored=unscored,
        copies=len(rows) - len(seen),
        repeated=sum(len(several) > 1 for several in found.values()),
    )


def _value_field(path: Path, row: Row) -> str:
    present = [name for name in VALUE_FIELDS if name in row]
    if len(present) == 1:
        return present[0]
    what = f"both {present[0]!r} and {present[1]!r}" if present else "no value"
    raise InputError(
        f"{path}: a row has {what}; name the field of the values with --value (it has {_has(row)})"
    )


def _has(row: Row) -> str:
    return ", ".join(map(repr, row))[:SHOWN]


def _key(row: Row, name: str) -> str:
    value = _at(row, name)
    if value is None:
        raise RowError(f"lacks {name!r}, which identifies its prompt")
    if row.get("input") not in (None, "") and name == "instruction":
        return f"{value}\n\n{row['input']}"
    return _written(value) or ""


def _result(row: Row, figure: str, cluster: str) -> PromptResult | None:
    given = _at(row, figure)
    if given is None:
        return None
    text = next((row[name] for name in TEXT_FIELDS if row.get(name) is not None), None)
    return PromptResult(
        value=_value(given, figure),
        text=_written(text),
        output=next((_text(row, name) for name in OUTPUT_FIELDS if name in row), None),
        reference=_text(row, REFERENCE),
        cluster=_named(row, cluster),
        family=_named(row, "family"),
        task=_named(row, "task"),
    )


def _at(row: Row, name: str) -> object:
    """Return a field, or a field of an object if the name has a dot.

    Raises:
        RowError: if the field is missing.
    """
    if name in row:
        return row[name]
    outer, dot, inner = name.partition(".")
    within = row.get(outer)
    if dot and isinstance(within, dict):
        return _at(cast("Row", within), inner)
    raise RowError(f"lacks the field {name!r} (it has {_has(row)})")


def _value(given: object, figure: str) -> float:
    """Return a value as a number: true is 1, several are their mean, a preference a share won."""
    several = cast("list[object]", given) if isinstance(given, list) else []
    if several:
        return fmean(_value(one, figure) for one in several)
    if isinstance(given, bool) and figure != PREFERENCE:
        return float(given)
    if isinstance(given, str) and given.strip().lower() in TRUTHS:
        return TRUTHS[given.strip().lower()]
    value = number(cast("object", given))
    if value is None:
        told = (
            repr(given)[:SHOWN]
            if isinstance(given, str | float)
            else kind_of(cast("object", given))
        )
        raise RowError(f"{figure!r} must be true, false or a number, but is {told}")
    if figure != PREFERENCE:
        return value
    if not (value == 0 or 1 - ROUNDING <= value <= 2 + ROUNDING):
        raise RowError(
            f"{figure!r} is {value:g}; it must be from 1 (the baseline wins) to 2 (the model "
            "wins), or 0 or 1.5 for a draw"
        )
    return share_won(value)


def _written(value: object) -> str | None:
    """Return a text as it is, a conversation as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _text(row: Row, name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None


def _named(row: Row, name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)


def _joined(several: Sequence[PromptResult]) -> PromptResult:
    """Return the mean result of a prompt's rows, otherwise the first."""
    return replace(several[0], value=fmean(result.value for result in several))
