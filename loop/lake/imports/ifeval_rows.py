"""Reading IFEval's published rows: a prompt with its instructions, and a response with verdicts.

Each published verdict becomes the rating of an aspect named as the instruction, 1 if followed and
-1 if not, by the critic `ifeval:strict` or `ifeval:loose`, so that it can be compared with what the
checks say here (`lpfloop critic-check`).
"""

from collections.abc import Iterator

from ....stores.records import Rating
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.ifeval_fields import INSTRUCTIONS
from ...data.prompt_rows import kind_of
from ...data.row_fields import answer_of, list_of, model_of
from .imported_rows import ImportedVerdict, Maker

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
            yield make.critique(candidate, critic, _verdicts(row, field), "")


def _verdicts(row: Row, field: str) -> list[ImportedVerdict]:
    names, said = list_of(row, INSTRUCTIONS), list_of(row, field)
    if len(names) != len(said):
        raise RowError(f"{field!r} has {len(said)} verdicts on {len(names)} instructions")
    return [
        ImportedVerdict(name=str(name), given=_level(followed, field))
        for name, followed in zip(names, said, strict=True)
    ]


def _level(followed: object, field: str) -> Rating:
    if not isinstance(followed, bool):
        raise RowError(f"{field!r} must hold true or false, but has {kind_of(followed)}")
    return 1 if followed else -1
