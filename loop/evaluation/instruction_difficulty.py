"""How hard instructions are to win on: a file of numbers for the length-controlled win-rate.

A row has an `instruction` (or another field of a prompt) and its `difficulty`, called
`instruction_difficulty` by AlpacaEval, whose own numbers grow where models win more. Scale and sign
do not matter: numbers are brought to AlpacaEval's spread, and their weight is fitted. Its published
file holds positions of its 805 instructions instead, and is to be joined with them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...configs.schema import RunConfig
from ...stores.keys import Json
from ...stores.records import Prompt
from ..data.files import InputError, RowError, file_digest, placed_rows
from ..data.prompt_rows import HEADED, RowShape, to_prompt
from ..data.text_lines import Row

DIFFICULTY = "difficulty"
NAMES = (DIFFICULTY, "instruction_difficulty")
SHOWN = 60

Difficulties = Mapping[str, float]
"""How hard an instruction is, by its text."""


def read_difficulties(path: Path) -> Difficulties:
    """Read a file of difficulties.

    Raises:
        InputError: for a file or row that cannot be read, or two numbers for an instruction.
    """
    found: dict[str, float] = {}
    for place, row in placed_rows(path):
        try:
            number = _number(row)
            texts = {_text(row, path.name, RowShape(input=form)) for form in HEADED}
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        for text in texts:
            if found.setdefault(text, number) != number:
                raise InputError(
                    f"{path}, {place}: a second difficulty of {text[:SHOWN]!r}; keep one"
                )
    return found


def difficulties_of(path: Path, instructions: Sequence[str]) -> list[float]:
    """Return the difficulty of each instruction.

    Raises:
        InputError: if the file cannot be read, or lacks one.
    """
    found = read_difficulties(path)
    missing = next((text for text in instructions if text not in found), None)
    if missing is not None:
        raise InputError(
            f"{path} lacks the difficulty of {missing[:SHOWN]!r}; every compared instruction needs "
            "one"
        )
    return [found[text] for text in instructions]


def require_difficulties(path: str, prompts: Sequence[Prompt]) -> None:
    """Refuse a file without a number for each of these prompts.

    Raises:
        InputError: naming the first that is missing, or another error.
    """
    difficulties_of(Path(path), [prompt.instruction for prompt in prompts])


def difficulty_fingerprint(config: RunConfig) -> Mapping[str, Json]:
    """Return the identity of a run's file of difficulties, which must not change.

    Raises:
        InputError: if the file cannot be read.
    """
    place = config.assessment.difficulty
    if isinstance(place, dict):
        return {
            DIFFICULTY: {
                eval_set: file_digest(Path(own)) for eval_set, own in sorted(place.items())
            }
        }
    return {} if place is None else {DIFFICULTY: file_digest(Path(place))}


def _text(row: Row, source: str, shape: RowShape) -> str:
    return to_prompt(row, task=None, split="held-out", source=source, shape=shape).instruction


def _number(row: Row) -> float:
    name = next((name for name in NAMES if row.get(name) is not None), None)
    if name is None:
        raise RowError(f"lacks {NAMES[0]!r}, a number")
    try:
        number = float(str(row[name]))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"{name!r} must be a number, but is {row[name]!r}")
    return number
