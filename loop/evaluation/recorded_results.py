"""Recorded results of two models on the same prompts: of two files, or of one of preferences.

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

from ..data.files import InputError, Placed, Row, RowError, file_digest, placed_rows
from ..data.prompt_rows import TEXT_FIELDS
from ..data.rating_scale import number
from ..data.row_fields import ANSWER_FIELDS
from ..data.row_texts import kind_of
from ..data.sanitize import one_line
from ..lake.statistics.win_rate import share_won
from .result_sources import FigureSource, names_of, refuse_unlike

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
MODEL = "generator_2"
SHOWN, PROMPT_SHOWN = 200, 60


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
class ResultFields:
    """The fields of prompt, value and cluster, if the user names them."""

    key: str | None = None
    value: str | None = None
    cluster: str = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPrompts:
    """The results of two models on the same prompts, by prompt, and remarks on them.

    `figure` is the field of the values.
    """

    figure: str
    a: Mapping[str, PromptResult]
    b: Mapping[str, PromptResult]
    remarks: Sequence[str]
    same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The results of a file by prompt, and remarks on skipped and merged rows."""

    source: FigureSource
    figure: str
    results: Mapping[str, PromptResult]
    remarks: Sequence[str]


def of_two(a: Path, b: Path, fields: ResultFields, other_value: str | None) -> PairedPrompts:
    """Return the results of two files on the prompts that both hold.

    Raises:
        InputError: if a file cannot be read, or if their figures cannot be compared.
    """
    files = {a: _load(a), b: _load(b)}
    asked = replace(fields, key=fields.key or _key_field(files))
    first = _read_results(a, files[a], asked)
    second = _read_results(b, files[b], replace(asked, value=other_value or asked.value))
    if asked.value is None and first.figure != second.figure:
        raise InputError(
            f"{a} holds {first.figure!r} and {b} {second.figure!r}: figures of different kinds "
            "cannot be compared; name the field of both with --value"
        )
    refuse_unlike(first.source, second.source)
    common = _common(first, second)
    alone = [len(of.results) - len(common) for of in (first, second)]
    both = f"{len(common)} prompts are in both files"
    apart = f"{both}; {alone[0]} are only in {a} and {alone[1]} only in {b}"
    return PairedPrompts(
        figure=first.figure,
        a={key: first.results[key] for key in common},
        b={key: second.results[key] for key in common},
        remarks=[*first.remarks, *second.remarks, *([apart] if any(alone) else [])],
        same=first.figure == second.figure and file_digest(a) == file_digest(b),
    )


def of_preferences(path: Path, fields: ResultFields) -> PairedPrompts:
    """Return each prompt's win, for the models of `output_1` (a) and of `output_2` (b).

    Raises:
        InputError: if the file cannot be read, or holds preferences on several models.
    """
    rows = _load(path)
    models = sorted({str(row[MODEL]) for _, row in rows if row.get(MODEL) is not None})
    if len(models) > 1:
        raise InputError(
            f"{path}: {MODEL!r} names {len(models)} models ({', '.join(models[:3])}); give a file "
            "for each model"
        )
    key = fields.key or _key_field({path: rows})
    found = _read_results(path, rows, replace(fields, key=key, value=fields.value or PREFERENCE))
    results = {key: found.results[key] for key in sorted(found.results)}
    return PairedPrompts(
        figure=found.figure,
        a={key: replace(r, value=1 - r.value, output=r.reference) for key, r in results.items()},
        b=results,
        remarks=found.remarks,
    )


def _common(first: _File, second: _File) -> list[str]:
    common = sorted(first.results.keys() & second.results.keys())
    a, b = first.source.path, second.source.path
    if not common:
        raise InputError(
            f"{a} ({len(first.results)} prompts) and {b} ({len(second.results)}) share no prompt: "
            "only results on the same prompts can be compared; look at --key"
        )
    for key in common:
        mine, other = first.results[key].text, second.results[key].text
        if mine is not None and other is not None and mine != other:
            texts = [one_line(text, limit=PROMPT_SHOWN) for text in (mine, other)]
            raise InputError(
                f"prompt {key!r} is {texts[0]} in {a} and {texts[1]} in {b}: "
                "results on different prompts cannot be compared; look at --key"
            )
    return common


def _load(path: Path) -> list[Placed]:
    """Return the rows of a file with their places; at least one."""
    rows = list(placed_rows(path))
    if not rows:
        raise InputError(f"{path}: holds no rows")
    return rows


def _key_field(files: Mapping[Path, Sequence[Placed]]) -> str:
    """Return the field that identifies the prompts of all files."""
    for name in KEY_FIELDS:
        if all(row.get(name) is not None for rows in files.values() for _, row in rows[:1]):
            return name
    path, rows = next(iter(files.items()))
    raise InputError(
        f"{', '.join(map(str, files))}: no field of {', '.join(KEY_FIELDS)} is there to tell the "
        f"prompts apart; name one with --key ({path} has {_has(rows[0][1])})"
    )


def _read_results(path: Path, rows: Sequence[Placed], fields: ResultFields) -> _File:
    """Return the results of a file's rows; `fields.key` must be set."""
    figure = fields.value or _value_field(path, rows[0][1])
    found: dict[str, list[PromptResult]] = {}
    distinct = {json.dumps(row, sort_keys=True, default=str): (at, row) for at, row in rows[::-1]}
    unscored = 0
    for place, row in reversed(distinct.values()):
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
    results = {
        key: replace(several[0], value=fmean(result.value for result in several))
        for key, several in found.items()
    }
    repeated = sum(len(several) > 1 for several in found.values())
    told = [
        (unscored, f"rows of {path} have no value and were left out"),
        (len(rows) - len(distinct), f"rows of {path} are copies of others and were counted once"),
        (repeated, f"prompts of {path} have several values, of which the mean counts"),
    ]
    return _File(
        source=FigureSource(
            path=path,
            names=names_of(row for _, row in rows),
            references={k: r.reference for k, r in results.items() if r.reference is not None},
        ),
        figure=figure,
        results=results,
        remarks=[f"{number} {what}" for number, what in told if number],
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
    return _text_of(value) or ""


def _result(row: Row, figure: str, cluster: str) -> PromptResult | None:
    given = _at(row, figure)
    if given is None:
        return None
    text = next((row[name] for name in TEXT_FIELDS if row.get(name) is not None), None)
    return PromptResult(
        value=_value(given, figure),
        text=_text_of(text),
        output=next((_text(row, name) for name in OUTPUT_FIELDS if name in row), None),
        reference=_text(row, REFERENCE),
        cluster=_name_in(row, cluster),
        family=_name_in(row, "family"),
        task=_name_in(row, "task"),
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


def _text_of(value: object) -> str | None:
    """Return a text as it is, a conversation as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _text(row: Row, name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None


def _name_in(row: Row, name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)
