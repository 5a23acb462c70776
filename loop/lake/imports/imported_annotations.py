# pyright: basic
"""Annotations of a run's own candidates: ratings of aspects, and votes between two.

They become rows of units of their own, one an iteration: they are added to the feedback model's
judgments and never replace them; pairing puts people's first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import Order, Preferred
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.row_fields import ANSWER_FIELDS, critic_of, remark_of
from ...data.row_texts import text_of
from .answer_rows import verdicts_of
from .imported_rows import Known, Maker

W = TypeVar("W", bound=str)
ANNOTATIONS = "annotations"
IDS = ("candidate_id", "first_id", "second_id")
PREFERRED: tuple[Preferred, ...] = ("first", "second", "tie")
ORDERS: tuple[Order, ...] = ("as_given", "swapped")


@dataclass(frozen=True, slots=True)
class Stored:
    """A candidate of the run, with the fields that an annotation needs."""

    candidate_id: str
    prompt_id: str
    iteration: int


def annotated(row: Row) -> bool:
    """Whether a row is an annotation: it names candidates, and has no answer."""
    answers = any(row.get(name) is not None for name in ANSWER_FIELDS)
    return not answers and ("candidate_id" in row or {"first_id", "second_id"} <= set(row))


def candidates_of(run: RunReader, ids: Iterable[str]) -> dict[str, Known]:
    """Return the candidates of a run with these ids."""
    wanted = pl.LazyFrame({"candidate_id": list(dict.fromkeys(ids))}, {"candidate_id": pl.String})
    found = (
        run.scan("candidates")
        .select("candidate_id", "prompt_id", "iteration")
        .join(wanted, on="candidate_id", how="semi")
        .collect()
    )
    return {row[0]: Stored(*row) for row in found.iter_rows()}


def present(run: RunReader) -> frozenset[str]:
    """Return the ids of the critiques and preferences that a run has."""
    ids = (("critiques", "critique_id"), ("preferences", "preference_id"))
    return frozenset(i for t, name in ids for i in run.scan(t).select(name).collect()[name])


def annotations(row: Row, make: Maker, known: Mapping[str, Known]) -> Iterator[StoredRow]:
    """Read a rating of one candidate, or a vote between two.

    Raises:
        RowError: if it cannot be read, or names a candidate that the run does not have.
    """
    who = critic_of(row)
    if who is None:
        raise RowError("no 'annotator': name who judged")
    said = remark_of(row, "critique") or remark_of(row, "text") or ""
    if "candidate_id" in row:
        verdicts = verdicts_of(row)
        if not verdicts and not said:
            raise RowError("neither 'ratings' nor 'text' has anything on the candidate")
        yield make.critique(_known(row, "candidate_id", known), who, verdicts, said)
        return
    first, second = (_known(row, name, known) for name in IDS[1:])
    if first.prompt_id != second.prompt_id or first.candidate_id == second.candidate_id:
        raise RowError("'first_id' and 'second_id' must be two candidates of one prompt")
    order = _one_of(row, "order", ORDERS) or "as_given"
    yield make.preference(
        first, second, who, _one_of(row, "preferred", PREFERRED), order=order, text=said
    )


def _known(row: Row, name: str, known: Mapping[str, Known]) -> Known:
    identity = text_of(row.get(name), name)
    if identity not in known:
        raise RowError(f"{name!r}: the run has no candidate {identity!r}")
    return known[identity]


def _one_of(row: Row, name: str, words: Sequence[W]) -> W | None:
    value = row.get(name)
    for word in words:
        if value == word:
            return word
    if value is None:
        return None
    raise RowError(f"{name!r} must be one of {', '.join(words)}")
