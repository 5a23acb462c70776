"""Reading a chosen and a rejected answer: TRL's forms, UltraFeedback binarised, and HH-RLHF."""

import re
from collections.abc import Iterator
from typing import cast, get_args

from ....stores.records import Message, Prompt, Rating, storable
from ....stores.schemas import Row as StoredRow
from ...data.conversations import CONTEXT, INPUT, require_agreement, transcript_turns
from ...data.file_row import optional_text, text_of
from ...data.files import Row, RowError
from ...data.prompt_rows import TEXT_FIELDS
from ...data.rating_scale import number
from ...data.row_fields import fields_of, score_of, side_of
from .imported_rows import Maker

SCORES = (("score_chosen", "chosen_reward"), ("score_rejected", "rejected_reward"))
"""The fields with the score of each side; the second name is from lpfloop's own tables."""
LEVELS: tuple[Rating, ...] = get_args(Rating)
BEGINS = re.compile(r"\s*Human:")
"""HH-RLHF's sides are transcripts: a conversation as one text, each turn after its speaker."""


def pairs(row: Row, make: Maker) -> Iterator[StoredRow]:
    """Read a chosen and a rejected answer, as texts or as conversations, perhaps with scores."""
    prompt, chosen, rejected = _sides(row, make)
    given, against = (None if at is None else score_of(*at) for at in _score_fields(row))
    first = make.candidate(prompt, chosen, optional_text(row, "chosen_model"))
    second = make.candidate(prompt, rejected, optional_text(row, "rejected_model"))
    yield from (prompt, first, second)
    for candidate, score in zip((first, second), (given, against), strict=True):
        yield from make.reward(candidate, "score", score)
    yield make.preference(first, second, make.source, "first")
    ratings = _ratings(row, "chosen_ratings"), _ratings(row, "rejected_ratings")
    yield make.pair(prompt, first, second, (given, against), ratings)


def _ratings(row: Row, name: str) -> tuple[Rating, ...]:
    """Return the ratings of a side in lpfloop's own exports of pairs, on three levels."""
    value = row.glance(name)
    if value is None:
        return ()
    given = cast("list[object]", value) if isinstance(value, list) else [value]
    found: list[Rating] = [level for one in given for level in LEVELS if number(one) == level]
    if len(found) < len(given):
        return ()
    row.get(name)
    return tuple(found)


def _sides(row: Row, make: Maker) -> tuple[Prompt, str, str]:
    """Return the prompt, which may be in the answers' conversations, and both answers."""
    side = _transcript_of if _is_transcript(row) else side_of
    before, chosen = side(row, "chosen")
    other, rejected = side(row, "rejected")
    # A blank answer can be a text if the other side is a conversation.
    if not (before or chosen.strip()) or not (other or rejected.strip()):
        before = other = before or other
    if before != other:
        raise RowError("'chosen' and 'rejected' do not share their prompt")
    if before:
        turns = [{"role": m.role, "content": m.content} for m in before]
        require_agreement(row, (*TEXT_FIELDS, INPUT, CONTEXT), before)
        prompt_row = row.without((*TEXT_FIELDS, INPUT)).having({"messages": turns})
        return make.prompt(prompt_row), chosen, rejected
    others = [name for name in TEXT_FIELDS if name != "messages"]
    if any(row.glance(name) not in (None, "", []) for name in others):
        prompt = make.prompt(row.without(["messages"]))
        require_agreement(row, ["messages"], prompt.messages)
        return prompt, chosen, rejected
    return make.prompt(row), chosen, rejected


def scores_of(row: Row) -> tuple[object, object]:
    """Return the scores of both sides as given."""
    places = _score_fields(row)
    chosen, rejected = (None if place is None else place[0][place[1]] for place in places)
    return chosen, rejected


def _score_fields(row: Row) -> tuple[tuple[Row, str] | None, tuple[Row, str] | None]:
    """Return the fields with each side's score: in the row, or in its `metadata`."""
    within = fields_of(row, "metadata") if isinstance(row.glance("metadata"), Row) else Row()
    chosen, rejected = (
        next(((o, n) for o in (row, within) for n in names if o.glance(n) is not None), None)
        for names in SCORES
    )
    return chosen, rejected


def _is_transcript(row: Row) -> bool:
    """Whether the sides of a row are transcripts, with the prompt in them; one may be blank."""
    if any(row.glance(name) is not None for name in TEXT_FIELDS):
        return False
    sides = [side for name in ("chosen", "rejected") if not _blank(side := row.glance(name))]
    return bool(sides) and all(isinstance(side, str) and BEGINS.match(side) for side in sides)


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _transcript_of(row: Row, name: str) -> tuple[tuple[Message, ...], str]:
    """Return the turns before the last answer of a transcript, and that answer, which may be empty.

    Raises:
        RowError: if it does not end with the assistant, or a turn before is empty.
    """
    if _blank(row.get(name)):
        return (), ""
    turns = transcript_turns(text_of(row.get(name), name))
    if turns[-1][0] != "assistant":
        raise RowError(f"{name!r} must end with a turn of the assistant")
    before = tuple(
        Message(role=role, content=text_of(text, f"{name}, turn {n}"))
        for n, (role, text) in enumerate(turns[:-1], start=1)
    )
    return before, storable(turns[-1][1])
