"""Reading AlpacaFarm's and AlpacaEval's rows: an answer, or two that were compared.

The fields of such a row are read here, whatever it is read for: an import, a check of judges, a
verdict on files, or the outputs of a reference model.
"""

from collections.abc import Iterator
from typing import Literal, cast

from ....stores.records import Candidate, Order, Prompt, storable
from ....stores.schemas import Row as StoredRow
from ...data.conversations import CONTEXT_FIELDS, OTHER_MEDIA
from ...data.file_row import one_of, optional_text, show_value
from ...data.files import Row, RowError
from ...data.prompt_rows import LISTED
from ...data.rating_scale import number
from ...data.row_fields import (
    FIRST,
    PLAIN_VOTES,
    SECOND,
    add_family,
    human,
    published_text,
    vote_of,
)
from .answer_rows import candidates
from .imported_rows import Maker

PROMPT_FIELDS = frozenset(
    {
        *("instruction", "prompt_id", "task", "family", "source", "reference", "checks"),
        *LISTED,
        *CONTEXT_FIELDS,
        *OTHER_MEDIA,
    }
)
"""The fields of the prompt of a row with two answers."""

ORDERS: tuple[Order, ...] = ("as_given", "swapped")
"""The orders in which a judge may have seen the two answers."""

Rows = Iterator[StoredRow]
Side = Literal["", "_1", "_2"]
"""The answer of a row with one, the first of two, or the second."""
PREFERENCE = "preference"
SIDES: tuple[Side, Side] = ("_1", "_2")
ROUNDING = 1e-9
"""How far a sum of probabilities may exceed AlpacaEval's bounds, 1 and 2."""


def alpaca(row: Row, make: Maker) -> Rows:
    """Read AlpacaFarm's and AlpacaEval's rows: two outputs and a preference, or one output."""
    if "output_1" not in row:
        yield from candidates(row, make)
        return
    prompt, first, second = _two(row, make)
    yield from (prompt, first, second)
    given = row.get("preference", row.get("label"))
    completion = row.get("raw_completion")
    text = storable(completion) if isinstance(completion, str) else ""
    if number(given) not in PLAIN_VOTES:
        text = f"{text}\n\n[preference as given: {given}]".strip()
    order = one_of(row, "order", ORDERS) or "as_given"
    annotator = annotator_in(row) or make.source
    yield make.preference(first, second, annotator, vote_of(given), order=order, text=text)


def output_in(row: Row, side: Side = "") -> str:
    """Return an answer of a row, which may be empty.

    Raises:
        RowError: if it is missing, or not a text.
    """
    return published_text(row.get(f"output{side}"), f"output{side}")


def generator_in(row: Row, side: Side = "") -> str | None:
    """Return the model that gave an answer of a row."""
    return optional_text(row, f"generator{side}")


def annotator_in(row: Row) -> str | None:
    """Return the judge of a row, or the person of AlpacaFarm's human annotations."""
    given = row.glance("annotator")
    if isinstance(given, Row):
        # AlpacaEval may describe its annotator by an object.
        return optional_text(cast("Row", row.get("annotator")), "name")
    if name := optional_text(row, "annotator"):
        return name
    index = row.get("annotator_index")
    return None if index is None else human(str(index))


def won_in(row: Row) -> float | None:
    """Return the second model's share of the win: 1, 0, a probability, or 0.5 for a draw.

    A preference of 1 means that the first wins, 2 that the second does, 0 or 1.5 that neither;
    values between 1 and 2 are the judge's probability.

    Raises:
        RowError: if the preference is something else.
    """
    given = row.get(PREFERENCE)
    if given is None:
        return None
    value = number(given)
    if value is None or not (value == 0 or FIRST - ROUNDING <= value <= SECOND + ROUNDING):
        raise RowError(
            f"{PREFERENCE!r} must be between 1 (the first wins) and 2 (the second), 0 or 1.5 for a "
            f"tie, or null, but is {show_value(given)}"
        )
    return 0.5 if value == 0 else value - FIRST


def _two(row: Row, make: Maker) -> tuple[Prompt, Candidate, Candidate]:
    """Return a prompt and its two answers."""
    fields = add_family(row)
    if not str(row.get("instruction") or "").strip():
        fields = fields.having({"instruction": row.get("input"), "input": ""})
    prompt = make.prompt(fields.without(fields.keys() - PROMPT_FIELDS))
    first, second = (
        make.candidate(prompt, output_in(row, side), generator_in(row, side)) for side in SIDES
    )
    return prompt, first, second
