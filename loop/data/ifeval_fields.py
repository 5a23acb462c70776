"""IFEval's fields of a prompt: `instruction_id_list`, and `kwargs` with the parameters of each.

They become checks of the prompt, as if they were listed under `checks`.
"""

from collections.abc import Iterator
from typing import cast

from .file_row import Row
from .text_lines import RowError

INSTRUCTIONS, PARAMETERS = "instruction_id_list", "kwargs"


def listed_checks(row: Row) -> Iterator[Row]:
    """Yield the row's instructions as checks with a kind and an argument.

    Raises:
        RowError: if the two lists do not belong together.
    """
    kinds, parameters = _list(row, INSTRUCTIONS), _list(row, PARAMETERS)
    if len(kinds) != len(parameters):
        raise RowError(
            f"{INSTRUCTIONS!r} names {len(kinds)} instructions, and {PARAMETERS!r} has parameters "
            f"for {len(parameters)}; give each instruction its own, {{}} for none"
        )
    for kind, given in zip(kinds, parameters, strict=True):
        yield Row({"kind": kind, "argument": {} if given is None else given})


def _list(row: Row, name: str) -> list[object]:
    value = row.get(name)
    if value is not None and not isinstance(value, list):
        raise RowError(f"{name!r} must be a list")
    return cast("list[object]", value or [])
