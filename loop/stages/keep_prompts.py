"""Keeping prompts as rows, so that the lake explains itself."""

from collections.abc import Sequence

from ...stores.keys import Json
from ...stores.records import Prompt
from ..run.handles import content_key
from ..run.run import Run, Verb, Work

KEEP_PROMPTS = Verb("prompts")


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
