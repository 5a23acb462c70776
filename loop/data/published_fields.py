"""Fields of published data sets that belong together, under the names that a prompt's row has.

IFEval's `instruction_id_list`, with the parameters of each in `kwargs`, become checks. verl's
`reward_model` holds the reference, `ability` the task. SVAMP has `Body`, `Question`, `Answer` and
`Type`: the story precedes the question. MAWPS, in the same authors' form, has the story in its
`Question` already, with `number0` in place of the first of its `Numbers`.
"""

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import cast

from .file_row import Row
from .text_lines import RowError

INSTRUCTIONS, PARAMETERS = "instruction_id_list", "kwargs"
PLACE = re.compile(r"\bnumber(\d+)\b")


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


def with_reference(row: Row) -> Row:
    """Return a row of verl with its reference, task and source under their names here."""
    scored = row.glance("reward_model")
    if not isinstance(scored, Row) or "ground_truth" not in scored or "reference" in row:
        return row
    row.get("reward_model")
    given = scored["ground_truth"]
    named = {"task": "ability", "source": "data_source"}
    mapped = {name: row[own] for name, own in named.items() if name not in row and own in row}
    return row.having({"reference": None if given == "" else given, **mapped})


def whole_problem(row: Row) -> Row:
    """Return a row with its story before the question, numbers in their places, and its family."""
    question, story = row.glance("question"), row.glance("body")
    if not isinstance(question, str) or not isinstance(story, str):
        return row
    row.get("body")
    if "numbers" in row:
        question = _fill(question, str(row["numbers"]).split())
    elif story.strip() and "ques_statement" not in row:
        question = f"{story.rstrip()} {question}"
    family = row.get("family") or row.get("type")
    named = {"family": family} if isinstance(family, str) else {}
    return row.having({"question": question, **named})


def number_text(value: float | Decimal) -> str:
    """Return a number as people write it: `2` for 2.0."""
    whole = isinstance(value, int) or (math.isfinite(value) and value == int(value))
    return str(int(value)) if whole else str(value)


def _fill(question: str, numbers: list[str]) -> str:
    """Put the numbers of a problem into their places."""
    try:
        return PLACE.sub(lambda place: number_text(float(numbers[int(place[1])])), question)
    except (IndexError, ValueError) as error:
        raise RowError(
            "'Numbers' does not hold a number for each place (number0, …) of 'Question'"
        ) from error
