"""IFEval's responses with the published verdicts on each instruction, as ratings of 1 and -1.

`lpfloop import responses.jsonl --as examples/imports/ifeval.py:rows --run ifeval`: then
`lpfloop critic-check ifeval` compares them with lpfloop's own checks.
"""

from collections.abc import Mapping
from typing import Any

VERDICTS = {
    "ifeval:loose": "follow_instruction_list_loose",
    "ifeval:strict": "follow_instruction_list_strict",
}
"""The fields that hold the verdicts, by critic; `critic-check` compares the last one there is."""


def rows(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the response with the verdicts of each critic; lpfloop reads the instructions."""
    names = row["instruction_id_list"]
    asked = {
        "prompt": row["prompt"],
        "instruction_id_list": names,
        "kwargs": row["kwargs"],
        "response": row["response"],
    }
    made = [
        {**asked, "critic": critic, "ratings": _ratings(names, row[field])}
        for critic, field in VERDICTS.items()
        if row.get(field) is not None
    ]
    return made or [asked]


def _ratings(names: list[str], followed: list[bool]) -> dict[str, int]:
    """Return a rating for each instruction; one that is there twice must be followed both times."""
    missed = {name for name, said in zip(names, followed, strict=True) if not said}
    return {name: -1 if name in missed else 1 for name in names}
