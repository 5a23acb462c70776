# pyright: basic
"""Annotations of a run's own candidates: ratings of aspects, and votes between two.

They become rows of separate units, one an iteration: they are added to the feedback model's
judgments and never replace them; pairing puts people's first.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import polars as pl

from ....stores.keys import digest
from ....stores.lake import RunReader, RunWriter
from ....stores.records import Critique, FilterCount, Preference, Preferred
from ....stores.schemas import Row as StoredRow
from ...data.file_row import one_of, optional_text, text_of
from ...data.files import Row, RowError
from ...data.rating_scale import number
from ...data.row_fields import ANSWER_FIELDS, critic_of, remark_of
from .answer_rows import ends_with_an_answer, verdicts_of
from .compared_rows import ORDERS
from .imported_rows import Known, Maker, Stored, WhenJudged, by_type, identity_of

IDS = ("candidate_id", "first_id", "second_id")
PREFERRED: tuple[Preferred, ...] = ("first", "second", "tie")


def is_annotation(row: Row) -> bool:
    """Whether a row is an annotation: it names candidates, and lacks an answer."""
    answers = any(row.get(name) is not None for name in ANSWER_FIELDS) or ends_with_an_answer(row)
    return not answers and ("candidate_id" in row or {"first_id", "second_id"} <= set(row))


def candidates_of(run: RunReader, ids: Iterable[str]) -> dict[str, Known]:
    """Return the candidates of a run with these ids."""
    id_frame = pl.LazyFrame({"candidate_id": list(dict.fromkeys(ids))}, {"candidate_id": pl.String})
    found = (
        run.scan("candidates")
        .select("candidate_id", "prompt_id", "iteration")
        .join(id_frame, on="candidate_id", how="semi")
        .collect()
    )
    return {row[0]: Stored(*row) for row in found.iter_rows()}


def present(run: RunReader, rows: Iterable[StoredRow]) -> frozenset[str]:
    """Return the ids of critiques and preferences among `rows` that a run has already."""
    ids = pl.Series([identity_of(row) for row in rows], dtype=pl.String).implode()
    names = (("critiques", "critique_id"), ("preferences", "preference_id"))
    found = (run.scan(t, columns={n}).filter(pl.col(n).is_in(ids)).collect()[n] for t, n in names)
    return frozenset(one for column in found for one in column)


def add_annotations(
    store: RunWriter,
    rows: Iterable[Critique | Preference | FilterCount],
    identity: str,
    present_ids: frozenset[str],
) -> bool:
    """Commit annotations, one unit an iteration; return whether any were pending.

    The rows are durable on return. Rows with `present_ids` are skipped.
    Later annotations get a later stage, so that they take precedence.
    """
    found = dict[int, list[Critique | Preference | FilterCount]]()
    for row in rows:
        found.setdefault(row.iteration, []).append(row)
    stage, pending = f"annotate:{identity[:12]}", False
    for iteration, given in sorted(found.items()):
        key = digest([identity, iteration])
        store.journal.plan(iteration, stage, identity, lambda key=key: [key])
        for unit in store.journal.pending(iteration, stage):
            new = [
                r for r in given if isinstance(r, FilterCount) or identity_of(r) not in present_ids
            ]
            store.commit(unit.key, by_type(new), {"rows": len(new)})
            pending = True
    store.flush()
    return pending


def annotations(row: Row, make: Maker, known: Mapping[str, Known]) -> Iterator[StoredRow]:
    """Read a rating of one candidate, or a vote between two.

    Raises:
        RowError: if it cannot be read, or names a candidate that the run does not have.
    """
    who = critic_of(row)
    if who is None:
        raise RowError("no 'annotator': name who judged")
    comment = remark_of(row, "critique") or remark_of(row, "text") or ""
    when = when_of(row)
    if "candidate_id" in row:
        verdicts = verdicts_of(row)
        if not verdicts and not comment:
            raise RowError("neither 'ratings' nor 'text' has anything on the candidate")
        yield make.critique(
            _known_candidate(row, "candidate_id", known), who, verdicts, comment, when=when
        )
        return
    first, second = (_known_candidate(row, name, known) for name in IDS[1:])
    if first.prompt_id != second.prompt_id or first.candidate_id == second.candidate_id:
        raise RowError("'first_id' and 'second_id' must be two candidates of one prompt")
    order = one_of(row, "order", ORDERS) or "as_given"
    preferred = one_of(row, "preferred", PREFERRED)
    yield make.preference(first, second, who, preferred, order=order, text=comment, when=when)


def when_of(row: Row) -> WhenJudged:
    """Return when a row was judged, and how long that took, if the row has these fields.

    Raises:
        RowError: for a time without a time zone, or invalid seconds.
    """
    at, seconds = optional_text(row, "judged_at"), row.get("judged_seconds")
    return WhenJudged(at=at and _in_utc(at), seconds=None if seconds is None else _long(seconds))


def _in_utc(given: str) -> str:
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise RowError(
            f"'judged_at' must be a time with its zone, such as 2026-05-01T09:30:00Z, not {given!r}"
        )
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _long(given: object) -> float:
    seconds = number(given)
    if seconds is None or seconds < 0:
        raise RowError(f"'judged_seconds' must be a number of seconds, not {given!r}")
    return seconds


def _known_candidate(row: Row, name: str, known: Mapping[str, Known]) -> Known:
    identity = text_of(row.get(name), name)
    if identity not in known:
        raise RowError(f"{name!r}: candidate {identity!r} is not in the run")
    return known[identity]
