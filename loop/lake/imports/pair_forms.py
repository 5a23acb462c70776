"""Reading a chosen and a rejected answer: TRL's forms, UltraFeedback binarised, and HH-RLHF."""

from collections.abc import Iterator

from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.prompt_rows import TEXT_FIELDS
from ...data.rating_scale import number
from ...data.row_fields import fields_of, side_of
from ...data.row_texts import optional_text
from .imported_rows import Maker
from .transcripts import is_transcript, transcript_of

SCORES = ("score_chosen", "score_rejected")


def pairs(row: Row, make: Maker) -> Iterator[StoredRow]:
    """Read a chosen and a rejected answer, as texts or as conversations, perhaps with scores."""
    side = transcript_of if is_transcript(row) else side_of
    before, chosen = side(row, "chosen")
    other, rejected = side(row, "rejected")
    if before != other:
        raise RowError("'chosen' and 'rejected' do not share their prompt")
    if before:
        turns = [{"role": m.role, "content": m.content} for m in before]
        prompt = make.prompt(row.without(TEXT_FIELDS).having({"messages": turns}))
    else:
        prompt = make.prompt(row.without(["messages"]))
    given = scores_of(row)
    scores = number(given[0]), number(given[1])
    first = make.candidate(prompt, chosen, optional_text(row, "chosen_model"))
    second = make.candidate(prompt, rejected, optional_text(row, "rejected_model"))
    yield prompt
    if first == second:
        return
    yield first
    yield second
    for candidate, score in zip((first, second), scores, strict=True):
        yield from make.reward(candidate, f"{make.source}:score", score)
    yield make.preference(first, second, make.source, "first")
    yield make.pair(prompt, first, second, scores)


def scores_of(row: Row) -> tuple[object, object]:
    """Return the scores of both sides as given: fields of the row, or of its `metadata`."""
    within = fields_of(row, "metadata")
    chosen, rejected = (row.get(n) if n in row else within.get(n) for n in SCORES)
    return chosen, rejected
