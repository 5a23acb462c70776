"""HH-RLHF's transcripts: a conversation as one text, each turn after `Human:` or `Assistant:`."""

import re

from ....stores.records import Message, storable
from ...data.files import Row, RowError
from ...data.prompt_rows import TEXT_FIELDS
from ...data.row_texts import text_of

ROLES = {"Human": "user", "Assistant": "assistant"}
SPEAKER = re.compile(r"(?:^\s*|\n\n)(Human|Assistant):")
BEGINS = re.compile(r"\s*Human:")
SIDES = ("chosen", "rejected")


def is_transcript(row: Row) -> bool:
    """Whether the sides of a row are transcripts, with the prompt in them; one may be blank."""
    if any(row.glance(name) is not None for name in TEXT_FIELDS):
        return False
    sides = [side for name in SIDES if not _blank(side := row.glance(name))]
    return bool(sides) and all(isinstance(side, str) and BEGINS.match(side) for side in sides)


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def transcript_of(row: Row, name: str) -> tuple[tuple[Message, ...], str]:
    """Return the turns before the last answer of a transcript, and that answer, which may be empty.

    Raises:
        RowError: if it does not end with the assistant, or a turn before is empty.
    """
    if _blank(row.get(name)):
        return (), ""
    parts = SPEAKER.split(text_of(row.get(name), name))[1:]
    turns = [(ROLES[who], turn.strip()) for who, turn in zip(parts[::2], parts[1::2], strict=True)]
    if turns[-1][0] != "assistant":
        raise RowError(f"{name!r} must end with a turn of the assistant")
    before = tuple(
        Message(role=role, content=text_of(text, f"{name}, turn {n}"))
        for n, (role, text) in enumerate(turns[:-1], start=1)
    )
    return before, storable(turns[-1][1])
