"""Reading two answers that were compared: AlpacaFarm and AlpacaEval."""

from collections.abc import Iterator

from ....stores.records import Candidate, Order, Prompt, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row
from ...data.prompt_context import CONTEXT_FIELDS, OTHER_MEDIA
from ...data.prompt_rows import LISTED
from ...data.rating_scale import number
from ...data.row_fields import (
    PLAIN_VOTES,
    add_family,
    human,
    one_of,
    published_text,
    vote_of,
)
from ...data.row_texts import optional_text
from .answer_rows import candidates
from .imported_rows import Maker

ASKED = frozenset(
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


def alpaca(row: Row, make: Maker) -> Rows:
    """Read AlpacaFarm's and AlpacaEval's rows: two outputs and a preference, or one output."""
    if "output_1" not in row:
        yield from candidates(row, make)
        return
    prompt, first, second = _two(row, make)
    yield from (prompt, first, second)
    given = row.get("preference", row.get("label"))
    said = row.get("raw_completion")
    text = storable(said) if isinstance(said, str) else ""
    if number(given) not in PLAIN_VOTES:
        text = f"{text}\n\n[preference as given: {given}]".strip()
    annotator = optional_text(row, "annotator") or _numbered_person(row) or make.source
    order = one_of(row, "order", ORDERS) or "as_given"
    yield make.preference(first, second, annotator, vote_of(given), order=order, text=text)


def _numbered_person(row: Row) -> str | None:
    """Return the person of a row of AlpacaFarm's human annotations."""
    index = row.get("annotator_index")
    return None if index is None else human(str(index))


def _two(row: Row, make: Maker) -> tuple[Prompt, Candidate, Candidate]:
    """Return a prompt and its two answers."""
    asked = add_family(row)
    if not str(row.get("instruction") or "").strip():
        asked = asked.having({"instruction": row.get("input"), "input": ""})
    prompt = make.prompt(asked.without(asked.keys() - ASKED))
    first, second = (
        make.candidate(
            prompt,
            published_text(row.get(f"output_{side}"), f"output_{side}"),
            optional_text(row, f"generator_{side}"),
        )
        for side in (1, 2)
    )
    return prompt, first, second
