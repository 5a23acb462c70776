"""The published formats that can be imported: each turns one row of a file into rows of the lake.

Each has a separate reader module.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ....configs.mistakes import alike, did_you_mean, list_names
from ....configs.own_function import OwnFunction, names_function, own_function
from ....configs.schema import ConfigError
from ....stores.schemas import Row as StoredRow
from ...data.conversations import INPUT
from ...data.file_row import as_row
from ...data.files import InputError, Row, RowError
from ...data.prompt_rows import TEXT_FIELDS
from ...data.rating_scale import THREE_LEVEL
from ...data.row_fields import ANSWER_FIELDS
from .answer_rows import ENTRY_FIELDS, candidates, ends_with_an_answer, prompts
from .compared_rows import alpaca
from .imported_rows import Maker
from .pair_forms import pairs
from .ultrafeedback_rows import ultrafeedback

ANNOTATIONS = "annotations"
"""The layout of annotations of a run's own candidates, which are added to that run."""

Rows = Iterator[StoredRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat:
    """A format: how it is recognised, the scale of its ratings, and its reader.

    `semantics` is raised when the same row would give other rows of the lake.
    """

    detect: Callable[[Row], bool]
    read: Callable[[Row, Maker], Rows]
    scale: str = THREE_LEVEL
    semantics: int = 1


def _has(*names: str) -> Callable[[Row], bool]:
    """Return a predicate: whether a row has all these fields."""
    return lambda row: row.keys() >= set(names)


FORMATS: Mapping[str, ImportFormat] = {
    "ultrafeedback": ImportFormat(
        detect=_has("completions", "instruction"), read=ultrafeedback, scale="1-5", semantics=4
    ),
    "pairs": ImportFormat(detect=_has("chosen", "rejected"), read=pairs, semantics=2),
    "alpacafarm": ImportFormat(detect=_has("output_1", "output_2"), read=alpaca, semantics=3),
    "alpacaeval": ImportFormat(
        detect=_has("instruction", "output", "generator"), read=alpaca, semantics=2
    ),
    "candidates": ImportFormat(
        detect=lambda row: (
            any(row.get(n) is not None for n in (*ANSWER_FIELDS, *ENTRY_FIELDS))
            or ends_with_an_answer(row)
        ),
        read=candidates,
        semantics=3,
    ),
    "prompts": ImportFormat(
        detect=lambda row: any(row.get(n) is not None for n in (*TEXT_FIELDS, INPUT)),
        read=prompts,
        semantics=3,
    ),
}
"""The formats by name, in the order in which a file's first row is tried."""


def format_of(row: Row) -> str | None:
    """Return the name of the first format that matches a row, or None."""
    return next((name for name, form in FORMATS.items() if form.detect(row)), None)


def named_layout(name: str | None) -> str | OwnFunction | None:
    """Return the layout of a name, or a user's function that reads rows; None for no name.

    Raises:
        InputError: if there is no such layout.
        ConfigError: if the function cannot be imported.
    """
    if name is None:
        return None
    if names_function(name):
        return own_function(name, arguments=1)
    if name not in (*FORMATS, ANNOTATIONS):
        known = alike(name, (*FORMATS, ANNOTATIONS))
        raise InputError(
            f"--as {name}: no such format; {did_you_mean(name, known)}the formats are "
            f"{list_names(known)}"
        )
    return name


def rows_in_format(row: Row, layout: str | OwnFunction) -> Iterator[tuple[ImportFormat, Row]]:
    """Yield the rows in known formats that a row of a file is, or that a user's function returns.

    A row for which the function fails cannot be read, like one that a shipped reader refuses.

    Raises:
        RowError: if the row cannot be read.
    """
    if isinstance(layout, str):
        yield FORMATS[layout], row
        return
    try:
        returned: object = layout(row)
    except ConfigError as error:
        raise RowError(str(error)) from error
    if not isinstance(returned, list):
        raise RowError(f"{layout.place}: must return a list of rows")
    for given in cast("list[object]", returned):
        if not isinstance(given, dict):
            raise RowError(f"{layout.place}: returned {given!r:.80} among its rows, no object")
        known = as_row(cast("dict[str, object]", given))
        name = format_of(known)
        if name is None:
            fields = ", ".join(map(repr, known))[:200]
            raise RowError(f"{layout.place}: returned a row in no known format ({fields})")
        yield FORMATS[name], known
