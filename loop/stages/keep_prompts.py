"""Keeping prompts as rows, so that the lake explains itself."""

from collections.abc import Sequence

from ...stores.keys import Json, digest
from ...stores.records import FilterCount, Prompt
from ..data.row_notes import FILTER
from ..run.handles import content_key
from ..run.run import Run, Verb, Work

KEEP_PROMPTS = Verb("prompts")
KEEP_RECEIPTS = Verb(FILTER)


def keep_prompts(
    run: Run, label: str, chunks: Sequence[Sequence[Prompt]], *, params: Json = None
) -> None:
    """Commit prompts, a chunk a unit, under iteration 0."""
    keys = [content_key(chunk) for chunk in chunks]
    work = Work(
        verb=KEEP_PROMPTS,
        params=params,
        upstream=tuple(keys),
        reads=lambda: [(key,) for key in keys],
    )
    run.make(0, label, work, lambda unit: {Prompt: chunks[unit.chunk]})


def keep_filter_counts(run: Run, left_out: Sequence[FilterCount]) -> None:
    """Commit filter counts of the rows of the prompts' files, if rows may be left out."""
    if not left_out:
        return
    counts_digest = digest([[counted.count, *counted.examples] for counted in left_out])
    work = Work(
        verb=KEEP_RECEIPTS, params=None, upstream=(counts_digest,), reads=lambda: [(counts_digest,)]
    )
    run.make(0, FILTER, work, lambda _unit: {FilterCount: left_out})
