"""Reading answers that their data set labels as right or wrong, as TruthfulQA does.

A label becomes a critique by `label:FIELD`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from ....stores.records import AspectRating, Candidate, Critique, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.row_fields import LABEL, text_or_empty
from ...data.row_texts import kind_of
from .imported_rows import Maker

Rows = Iterator[StoredRow]
CORRECT, INCORRECT = "correct_answers", "incorrect_answers"
BEST, BEST_INCORRECT = "best_answer", "best_incorrect_answer"
TRUE = "true"
"""The field of a label that is given by the list in which the answer is."""


def label(
    make: Maker, candidate: Candidate, name: str, *, right: bool, comment: str = ""
) -> Critique:
    """Return the label `name` of an answer in a data set as a critique: whether it is right."""
    said = AspectRating(name=name, rating=1 if right else -1, comment=storable(comment))
    return make.levelled(candidate, f"{LABEL}{name}", [said])


def truth(value: object, where: str) -> bool:
    """Return a label, which must be true or false."""
    if not isinstance(value, bool):
        raise RowError(f"{where!r} must be true or false, but is {kind_of(value)}")
    return value


def truthfulqa(row: Row, make: Maker) -> Rows:
    """Read TruthfulQA's questions; their best answer is the reference."""
    own = {name.lower().replace(" ", "_"): name for name in row}

    def given(name: str) -> object:
        return row.get(own.get(name, name))

    asked = {"question": given("question"), "reference": given(BEST)}
    right, wrong = (tuple(_listed(given(name), name)) or None for name in (CORRECT, INCORRECT))
    prompt = replace(
        make.prompt(Row({**asked, "family": given("category")})),
        correct_answers=right,
        incorrect_answers=wrong,
    )
    yield prompt
    made = dict[tuple[str, str], Candidate]()
    for name, best, right in ((CORRECT, BEST, True), (INCORRECT, BEST_INCORRECT, False)):
        for text in dict.fromkeys([*_listed(given(name), name), *_listed(given(best), best, None)]):
            candidate = make.candidate(prompt, text, name)
            made[name, text] = candidate
            yield candidate
            yield label(make, candidate, TRUE, right=right)
    first = made.get((CORRECT, _text(given(BEST))))
    second = made.get((INCORRECT, _text(given(BEST_INCORRECT))))
    if first is not None and second is not None:
        yield make.preference(first, second, f"{LABEL}{BEST}", "first")


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _listed(value: object, name: str, separator: str | None = ";") -> list[str]:
    """Return a list of answers, which may be one text with semicolons between them."""
    if isinstance(value, list):
        return [text_or_empty(text, name) for text in cast("list[object]", value)]
    if value is None:
        return []
    text = text_or_empty(value, name)
    parts = text.split(separator) if separator else [text]
    return [part.strip() for part in parts if part.strip()]


def is_truthfulqa(row: Row) -> bool:
    """Whether a row is one of TruthfulQA, as its CSV or as the hub has it."""
    names = {name.lower().replace(" ", "_") for name in row}
    return {"question", BEST, CORRECT, INCORRECT} <= names
