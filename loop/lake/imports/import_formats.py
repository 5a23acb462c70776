"""The published formats that can be imported: each turns one row of a file into rows of the lake.

Each has a separate reader module.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ....configs.own_function import OwnFunction
from ....configs.schema import ConfigError
from ....stores.schemas import Row as StoredRow
from ...data.field_names import in_known_case
from ...data.file_row import as_row
from ...data.files import Row, RowError
from ...data.ifeval_fields import INSTRUCTIONS
from ...data.prompt_context import INPUT
from ...data.prompt_rows import TEXT_FIELDS
from ...data.rating_scale import THREE_LEVEL
from ...data.row_fields import ANSWER_FIELDS
from .answer_rows import ENTRY_FIELDS, candidates, ends_with_an_answer, prompts
from .compared_rows import alpaca
from .factscore_rows import factscore, is_factscore
from .ifeval_rows import ifeval
from .imported_rows import Maker
from .labelled_rows import is_truthfulqa, truthfulqa
from .pair_forms import pairs
from .ultrafeedback_rows import ultrafeedback

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
    "ifeval": ImportFormat(
        detect=lambda row: INSTRUCTIONS in row and "prompt" in row, read=ifeval, semantics=2
    ),
    "pairs": ImportFormat(detect=_has("chosen", "rejected"), read=pairs, semantics=2),
    "alpacafarm": ImportFormat(detect=_has("output_1", "output_2"), read=alpaca, semantics=2),
    "alpacaeval": ImportFormat(
        detect=_has("instruction", "output", "generator"), read=alpaca, semantics=2
    ),
    "factscore": ImportFormat(detect=is_factscore, read=factscore),
    "truthfulqa": ImportFormat(detect=is_truthfulqa, read=truthfulqa, semantics=2),
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


def own_format(function: OwnFunction) -> ImportFormat:
    """Return the format that a user's function reads.

    It takes a row, and returns rows in formats of `FORMATS`. A row for which it fails cannot be
    read, like one that a shipped reader refuses.
    """

    def read(row: Row, make: Maker) -> Rows:
        try:
            returned: object = function(row)
        except ConfigError as error:
            raise RowError(str(error)) from error
        if not isinstance(returned, list):
            raise RowError(f"{function.place}: must return a list of rows")
        made = list[StoredRow]()
        for given in cast("list[object]", returned):
            if not isinstance(given, dict):
                raise RowError(
                    f"{function.place}: returned {given!r:.80} among its rows, no object"
                )
            known = in_known_case(as_row(cast("dict[str, object]", given)))
            name = format_of(known)
            if name is None:
                fields = ", ".join(map(repr, known))[:200]
                raise RowError(f"{function.place}: returned a row in no known format ({fields})")
            made += FORMATS[name].read(known, make)
        yield from dict.fromkeys(made)  # several rows may be about one prompt or answer

    return ImportFormat(detect=lambda _: False, read=read)
