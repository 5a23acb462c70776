"""Two models' recorded results on the same prompts: of two files, or of one of preferences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.files import InputError, file_digest
from ..data.sanitize import one_line
from .recorded_results import (
    PREFERENCE,
    PromptResult,
    RecordedResults,
    ResultFields,
    key_field,
    loaded,
    recorded,
)
from .result_sources import refuse_unlike

MODEL = "generator_2"
SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPrompts:
    """The results of two models on the same prompts, by prompt, and remarks on them."""

    figure: str
    a: Mapping[str, PromptResult]
    b: Mapping[str, PromptResult]
    remarks: Sequence[str]
    same: bool = False


def of_two(a: Path, b: Path, fields: ResultFields, other_value: str | None) -> PairedPrompts:
    """Return the results of two files on the prompts that both hold.

    Raises:
        InputError: if a file cannot be read, or if their figures cannot be compared.
    """
    files = {a: loaded(a), b: loaded(b)}
    asked = replace(fields, key=fields.key or key_field(files))
    first = recorded(a, files[a], asked)
    second = recorded(b, files[b], replace(asked, value=other_value or asked.value))
    if asked.value is None and first.figure != second.figure:
        raise InputError(
            f"{a} holds {first.figure!r} and {b} {second.figure!r}: figures of different kinds "
            "cannot be compared; name the field of both with --value"
        )
    refuse_unlike(first.source, second.source)
    common = _common(first, second)
    return PairedPrompts(
        figure=first.figure,
        a={key: first.results[key] for key in common},
        b={key: second.results[key] for key in common},
        remarks=[*_left_out(first), *_left_out(second), *_not_shared(first, second, len(common))],
        same=first.figure == second.figure and file_digest(a) == file_digest(b),
    )


def of_preferences(path: Path, fields: ResultFields) -> PairedPrompts:
    """Return each prompt's win, for the models of `output_1` (a) and of `output_2` (b).

    Raises:
        InputError: if the file cannot be read, or holds preferences on several models.
    """
    rows = loaded(path)
    models = sorted({str(row[MODEL]) for _, row in rows if row.get(MODEL) is not None})
    if len(models) > 1:
        raise InputError(
            f"{path}: {MODEL!r} names {len(models)} models ({', '.join(models[:3])}); give a file "
            "for each model"
        )
    key = fields.key or key_field({path: rows})
    found = recorded(path, rows, replace(fields, key=key, value=fields.value or PREFERENCE))
    results = {key: found.results[key] for key in sorted(found.results)}
    return PairedPrompts(
        figure=found.figure,
        a={key: replace(r, value=1 - r.value, output=r.reference) for key, r in results.items()},
        b=results,
        remarks=_left_out(found),
    )


def _common(first: RecordedResults, second: RecordedResults) -> list[str]:
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
            texts = [one_line(text, limit=SHOWN) for text in (mine, other)]
            raise InputError(
                f"prompt {key!r} is {texts[0]} in {a} and {texts[1]} in {b}: "
                "results on different prompts cannot be compared; look at --key"
            )
    return common


def _left_out(found: RecordedResults) -> list[str]:
    path = found.source.path
    told = [
        (found.unscored, f"rows of {path} have no value and were left out"),
        (found.copies, f"rows of {path} are copies of others and were counted once"),
        (found.repeated, f"prompts of {path} have several values, of which the mean counts"),
    ]
    return [f"{number} {what}" for number, what in told if number]


def _not_shared(first: RecordedResults, second: RecordedResults, common: int) -> list[str]:
    alone = len(first.results) - common, len(second.results) - common
    if not any(alone):
        return []
    here, there = first.source.path, second.source.path
    both = f"{common} prompts are in both files"
    return [f"{both}; {alone[0]} are only in {here} and {alone[1]} only in {there}"]
