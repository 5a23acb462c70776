"""Stored annotations in AlpacaEval's format: pairs of outputs, and the preference.

`output_1` is the reference's, `output_2` the model's; `preference` is 1 if the reference wins, 2 if
the model does, 0 or 1.5 for a draw, between 1 and 2 the judge's probability, and null if its reply
could not be read. Other fields are ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.files import InputError, Row, RowError, placed_rows
from ..data.row_texts import kind_of
from ..lake.statistics.win_rate import TIES, share_won
from .result_sources import FigureSource, joined_names, names_of

LOST, WON = 1.0, 2.0
ROUNDING = 1e-9
"""The tolerance for sums of probabilities, which may exceed the bounds slightly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One comparison: the instruction, both outputs, and the preference, None if unread.

    `group` is the value of the field by which results are grouped; `names` are those of the judge
    and the baseline, by kind, where the row gives them.
    """

    instruction: str
    reference: str
    output: str
    preference: float | None
    generator: str | None
    group: str | None
    names: Mapping[str, frozenset[str]]

    @property
    def longer_by(self) -> int:
        """How many characters the model's output has more than the reference's."""
        return len(self.output) - len(self.reference)

    @property
    def won(self) -> float | None:
        """The model's share of the win, from 0 to 1; None if it was not read."""
        return None if self.preference is None else share_won(self.preference)


def read_annotations(path: Path, *, by: str | None = None) -> list[Annotation]:
    """Read a file of annotations of one model: a JSON list, or one object a line.

    Raises:
        InputError: for a file that cannot be read, or if nothing was scored.
    """
    found = list[Annotation]()
    for place, row in placed_rows(path):
        try:
            found.append(_annotation(row, by))
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
    if all(annotation.preference is None for annotation in found):
        what = "no preference that was read" if found else "no annotations"
        raise InputError(f"{path}: holds {what}, so there is no win-rate")
    generators = sorted({a.generator for a in found if a.generator is not None})
    if len(generators) > 1:
        raise InputError(
            f"{path}: 'generator_2' names {len(generators)} models ({', '.join(generators[:3])}); "
            "give a file for each model"
        )
    return found


def source_of(path: Path, annotations: Sequence[Annotation]) -> FigureSource:
    """Return by whom, and against which outputs, the model of a file was judged."""
    return FigureSource(
        path=path,
        names=joined_names(annotation.names for annotation in annotations),
        references={a.instruction: a.reference for a in annotations},
    )


def _annotation(row: Row, by: str | None) -> Annotation:
    instruction = _text(row, "instruction")
    if row.get("input") not in (None, ""):
        # AlpacaFarm keeps the input of the instruction in a field of its own.
        instruction = f"{instruction}\n\n{_text(row, 'input')}"
    return Annotation(
        instruction=instruction,
        reference=_text(row, "output_1"),
        output=_text(row, "output_2"),
        preference=_preference(row),
        generator=None if row.get("generator_2") is None else _text(row, "generator_2"),
        group=None if by is None else _group(row, by),
        names=names_of([row]),
    )


def _text(row: Row, name: str) -> str:
    """Return a text unchecked: a model's output may be empty, or end in half a character."""
    value = row.get(name)
    if not isinstance(value, str):
        raise RowError(f"{name!r} must be a text, but is {kind_of(value)}")
    return value


def _preference(row: Row) -> float | None:
    if "preference" not in row:
        raise RowError("'preference' is missing; write null if no verdict could be read")
    value = row["preference"]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(f"'preference' must be a number or null, but is {kind_of(value)}")
    if not (value in TIES or LOST - ROUNDING <= value <= WON + ROUNDING):
        raise RowError(
            f"'preference' is {value}; it must be from 1 (the reference wins) to 2 (the model "
            "wins), 0 or 1.5 for a draw, or null if no verdict could be read"
        )
    return float(value)


def _group(row: Row, by: str) -> str:
    value = row.get(by)
    if value is None:
        raise RowError(f"has no field {by!r}, by which results are grouped")
    return str(value)


def groups(annotations: Sequence[Annotation]) -> dict[str, list[Annotation]]:
    """Return the annotations of each group, in the order of the groups' names."""
    found: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        if annotation.group is not None:
            found.setdefault(annotation.group, []).append(annotation)
    return dict(sorted(found.items()))
