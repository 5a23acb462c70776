"""Reading LLMBar: pairs with an objective label, and judges' verdicts on them in both orders.

A verdict names its pair by the subset and the number of the row in the subset's file, so that file
is read before it in the same import.
"""

from collections.abc import Iterator
from pathlib import Path

from ....stores.records import Order
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.row_fields import (
    LABEL,
    fields_of,
    remark_of,
    score_of,
    text_or_empty,
    vote_of,
)
from ...data.row_texts import text_of
from .imported_rows import Maker

Rows = Iterator[StoredRow]
ORDERS: tuple[tuple[str, Order], ...] = (("order1", "as_given"), ("order2", "swapped"))
LABELLED_PAIR = {"input", "output_1", "output_2", "label"}
VERDICT = {"subset", "idx", "llm", "strategy"}
"""The fields by which the two kinds of rows are recognised."""
OUTPUTS = ("output_1", "output_2")


def subset_of(path: Path) -> str:
    """Return the subset that a file of pairs holds, by its name: `LLMBar/Natural`."""
    stem = path.parent if path.stem == "dataset" else path.with_suffix("")
    _, known, subset = stem.as_posix().replace("__", "/").rpartition("LLMBar/")
    return known + subset if known else stem.name


def pairs_with_label(row: Row, make: Maker) -> Rows:
    """Read two outputs, of which the label (1 or 2) says which is better."""
    prompt = make.prompt(Row({"instruction": row.get("input"), "family": subset_of(make.file)}))
    made = [make.candidate(prompt, text_or_empty(row.get(n), n), n) for n in OUTPUTS]
    place = f"{subset_of(make.file)}/{make.number}"
    for output, candidate in zip(OUTPUTS, made, strict=True):
        make.named.candidates[f"{place} {output}"] = candidate
    yield prompt
    yield from made
    yield make.preference(made[0], made[1], f"{LABEL}label", vote_of(row.get("label")))


def verdicts_in_orders(row: Row, make: Maker) -> Rows:
    """Read a judge's verdicts on a pair of an earlier file, with its replies if they are there."""
    place = f"{text_of(row.get('subset'), 'subset')}/{row.get('idx')}"
    known = [make.named.candidates.get(f"{place} {output}") for output in OUTPUTS]
    first, second = known
    if first is None or second is None:
        raise RowError(
            f"is on the pair {place}, whose texts no earlier file holds: name the subset's file of "
            "pairs (input, output_1, output_2, label) before this one; `lpfloop judge-check` reads "
            "verdicts without texts"
        )
    judge = f"{text_of(row.get('llm'), 'llm')} {text_of(row.get('strategy'), 'strategy')}"
    for field, order in ORDERS:
        said = fields_of(row, field)
        winner = said.get("winner", row.get(f"winner_{field}"))
        text = remark_of(said, "text") or ""
        yield make.preference(first, second, judge, vote_of(winner), order=order, text=text)
    for candidate, field in ((first, "score_1"), (second, "score_2")):
        yield from make.reward(candidate, f"{make.source}:{judge}", score_of(row, field))
