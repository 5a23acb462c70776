"""Recorded results of two models on the same prompts: of two files, or of one of preferences.

A row has a prompt (`prompt_id` or `id`, or its text) and a value: a boolean, a score, or a
preference as AlpacaEval stores it. Optional fields are the `cluster` of the prompt, and the answer
as `output`.

Figures of different judges, baselines or checkers cannot be compared, since a model would seem to
win or lose against itself; such comparisons are refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import cast

from ...configs.mistakes import list_names
from ..data.file_row import show_value
from ..data.files import InputError, Placed, Row, RowError, file_digest, placed_rows
from ..data.prompt_rows import TEXT_FIELDS
from ..data.rating_scale import number
from ..data.row_fields import ANSWER_FIELDS, TRUTHS
from ..data.text import one_line
from ..lake.imports.compared_rows import (
    PREFERENCE,
    annotator_in,
    generator_in,
    output_in,
    won_in,
)

KEY_FIELDS = ("prompt_id", "id", *TEXT_FIELDS)
SCORES = ("value", "score", "correct", "is_correct", "success", "passed", "verified", "rating")
VALUE_FIELDS = (*SCORES, "reward", PREFERENCE)
KINDS = ("judge", "baseline", "checker")
"""What a row may name as the source of its figure."""
SHOWN, PROMPT_SHOWN = 200, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """A model's value for a prompt: the mean of its values, if it has several.

    `reference` is the answer that `output` was compared with.
    """

    value: float
    text: str | None
    output: str | None
    reference: str | None
    cluster: str | None


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
    """The results of a file by prompt, the names in it by kind, and remarks on its rows."""

    path: Path
    figure: str
    results: Mapping[str, PromptResult]
    named: Mapping[str, frozenset[str]]
    remarks: Sequence[str]


def of_two(a: Path, b: Path, fields: ResultFields, other_value: str | None) -> PairedPrompts:
    """Return the results of two files on the prompts that both hold.

    Raises:
        InputError: if a file cannot be read, or if their figures cannot be compared.
    """
    files = {a: _load(a), b: _load(b)}
    fields_used = replace(fields, key=fields.key or _key_field(files))
    first = _read_results(a, files[a], fields_used)
    second = _read_results(
        b, files[b], replace(fields_used, value=other_value or fields_used.value)
    )
    if fields_used.value is None and first.figure != second.figure:
        raise InputError(
            f"{a} holds {first.figure!r} and {b} {second.figure!r}: figures of different kinds "
            "cannot be compared; name the field of both with --value"
        )
    common = _common(first, second)
    _refuse_unlike(first, second, common)
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
    models = sorted({name for _, row in rows if (name := generator_in(row, "_2")) is not None})
    if len(models) > 1:
        raise InputError(
            f"{path}: 'generator_2' names {len(models)} models ({list_names(models)}); give a file "
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
    a, b = first.path, second.path
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


def _refuse_unlike(first: _File, second: _File, common: Sequence[str]) -> None:
    """Refuse two files whose figures have different sources, if the files name them.

    Raises:
        InputError: if they name different judges, baselines or checkers, or if the baseline
            answered a prompt differently.
    """
    for kind in KINDS:
        here, there = first.named[kind], second.named[kind]
        # Of a pool from which each row draws its judge, a short file may not name all.
        if here and there and 2 * len(here & there) <= len(here | there):
            names = [list_names([repr(name) for name in sorted(of)]) for of in (here, there)]
            raise InputError(
                f"{first.path} names the {kind} {names[0]}, and {second.path} {names[1]}: figures "
                f"of different {kind}s cannot be compared; give two files of the same {kind}"
            )
    references = [[of.results[key].reference for of in (first, second)] for key in common]
    unlike = [
        key
        for key, both in zip(common, references, strict=True)
        if None not in both and both[0] != both[1]
    ]
    if unlike:
        raise InputError(
            f"the baseline's output ('output_1') differs between {first.path} and {second.path} "
            f"for {len(unlike)} of {len(common)} prompts "
            f"({one_line(unlike[0], limit=PROMPT_SHOWN)!r}): figures against different baselines "
            "cannot be compared"
        )


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
    named: dict[str, set[str]] = {kind: set() for kind in KINDS}
    distinct = {json.dumps(row, sort_keys=True, default=str): (at, row) for at, row in rows[::-1]}
    unscored = 0
    for place, row in reversed(distinct.values()):
        try:
            key, value = _key(row, fields.key or "id"), _value(row, figure)
            if value is None:
                unscored += 1
            else:
                found.setdefault(key, []).append(_result(row, value, fields.cluster))
            for kind, name in _names(row).items():
                named[kind] |= {name} if name else set()
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
    if not found:
        raise InputError(f"{path}: no row has a value in {figure!r}")
    repeated = sum(len(several) > 1 for several in found.values())
    skipped = [
        (unscored, f"rows of {path} have no value and were left out"),
        (len(rows) - len(distinct), f"rows of {path} are copies of others and were counted once"),
        (repeated, f"prompts of {path} have several values, of which the mean counts"),
    ]
    return _File(
        path=path,
        figure=figure,
        results={
            key: replace(several[0], value=fmean(result.value for result in several))
            for key, several in found.items()
        },
        named={kind: frozenset(names) for kind, names in named.items()},
        remarks=[f"{count} {what}" for count, what in skipped if count],
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


def _result(row: Row, value: float, cluster: str) -> PromptResult:
    text = next((row[name] for name in TEXT_FIELDS if row.get(name) is not None), None)
    compared = row.get("output_2") is not None
    answer = next((row[name] for name in ANSWER_FIELDS if row.get(name) is not None), None)
    return PromptResult(
        value=value,
        text=_text_of(text),
        output=output_in(row, "_2") if compared else answer if isinstance(answer, str) else None,
        reference=output_in(row, "_1") if row.get("output_1") is not None else None,
        cluster=None if (given := row.get(cluster)) is None else str(given),
    )


def _names(row: Row) -> dict[str, str | None]:
    """Return the judge, the baseline and the checker that a row names."""

    def given(*fields: str) -> str | None:
        return next((str(row[name]) for name in fields if row.get(name) is not None), None)

    return {
        "judge": given("judge") or annotator_in(row) or given("critic"),
        "baseline": given("baseline") or generator_in(row, "_1"),
        "checker": given("checker", "verifier", "metric"),
    }


def _at(row: Row, name: str) -> object:
    """Return a field, or a field of an object if the name has a dot.

    Raises:
        RowError: if the field is missing.
    """
    if name in row:
        return row[name]
    outer, dot, inner = name.partition(".")
    within = row.get(outer)
    if dot and isinstance(within, Row):
        return _at(within, inner)
    raise RowError(f"lacks the field {name!r} (it has {_has(row)})")


def _value(row: Row, figure: str) -> float | None:
    """Return a row's value as a number: true is 1, several are their mean, a preference a win."""
    given = _at(row, figure)
    if figure == PREFERENCE:
        return won_in(row)
    return None if given is None else _number(given, figure)


def _number(given: object, figure: str) -> float:
    several = cast("list[object]", given) if isinstance(given, list) else []
    if several:
        return fmean(_number(one, figure) for one in several)
    if isinstance(given, bool):
        return float(given)
    if isinstance(given, str) and given.strip().lower() in TRUTHS:
        return float(TRUTHS[given.strip().lower()])
    value = number(cast("object", given))
    if value is None:
        text = show_value(cast("object", given))
        raise RowError(f"{figure!r} must be true, false or a number, but is {text}")
    return value


def _text_of(value: object) -> str | None:
    """Return a text as it is, a conversation as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
