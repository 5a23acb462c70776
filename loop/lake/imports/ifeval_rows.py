"""Reading IFEval's published rows: a prompt with its instructions, and a response with verdicts.

Each published verdict becomes the rating of an aspect named as the instruction, 1 if followed and
-1 if not, by the critic `ifeval:strict` or `ifeval:loose`, so that it can be compared with
lpfloop's
own checks (`lpfloop critic-check`).
"""

from collections.abc import Iterator

from ....stores.records import AspectRating
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.published_fields import INSTRUCTIONS
from ...data.row_fields import answer_of, list_of, model_of
from ...data.row_texts import kind_of
from .imported_rows import Maker

VERDICTS = {
    "ifeval:loose": "follow_instruction_list_loose",
    "ifeval:strict": "follow_instruction_list_strict",
}
"""The fields that hold the verdicts, by critic; `critic-check` compares the last one there is."""

Rows = Iterator[StoredRow]


def ifeval(row: Row, make: Maker) -> Rows:
    """Read a prompt with instructions; the response and the verdicts may be absent."""
    prompt = make.prompt(row)
    yield prompt
    text = answer_of(row)
    if text is None:
        return
    candidate = make.candidate(prompt, text, model_of(row))
    yield candidate
    for critic, field in VERDICTS.items():
        if row.get(field) is not None:
            yield make.levelled(candidate, critic, _verdicts(row, field))


def _verdicts(row: Row, field: str) -> list[AspectRating]:
    names, said = list_of(row, INSTRUCTIONS), list_of(row, field)
    if len(names) != len(said):
        raise RowError(f"{field!r} has {len(said)} verdicts on {len(names)} instructions")
    for followed in said:
        if not isinstance(followed, bool):
            raise RowError(f"{field!r} must be true or false, but is {kind_of(followed)}")
    return [
        AspectRating(name=str(name), rating=1 if followed else -1, comment="")
        for name, followed in zip(names, said, strict=True)
    ]
