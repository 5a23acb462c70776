"""Word problems in parts.

SVAMP has `Body`, `Question`, `Answer` and `Type`: the story precedes the question. MAWPS, in the
same authors' form, has the story in its `Question` already, with `number0` in place of the first of
its `Numbers`.
"""

import math
import re
from decimal import Decimal

from .file_row import Row
from .text_lines import RowError

PLACE = re.compile(r"\bnumber(\d+)\b")


def whole_problem(row: Row) -> Row:
    """Return a row with its story before the question, numbers in their places, and its family."""
    question, story = row.glance("question"), row.glance("body")
    if not isinstance(question, str) or not isinstance(story, str):
        return row
    row.get("body")
    if "numbers" in row:
        question = _filled(question, str(row["numbers"]).split())
    elif story.strip() and "ques_statement" not in row:
        question = f"{story.rstrip()} {question}"
    family = row.get("family") or row.get("type")
    named = {"family": family} if isinstance(family, str) else {}
    return row.having({"question": question, **named})


def number_text(value: float | Decimal) -> str:
    """Return a number as people write it: `2` for 2.0."""
    whole = isinstance(value, int) or (math.isfinite(value) and value == int(value))
    return str(int(value)) if whole else str(value)


def _filled(question: str, numbers: list[str]) -> str:
    """Put the numbers of a problem into their places."""
    try:
        return PLACE.sub(lambda place: number_text(float(numbers[int(place[1])])), question)
    except (IndexError, ValueError) as error:
        raise RowError(
            "'Numbers' does not hold a number for each place (number0, …) of 'Question'"
        ) from error
