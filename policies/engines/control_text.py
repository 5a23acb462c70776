"""Control texts: what stands before a prompt to say how good the answer is to be."""

from collections.abc import Sequence
from dataclasses import replace

from ...stores.records import Message

USER = "user"


def conditioned(messages: Sequence[Message], control: str) -> tuple[Message, ...]:
    """Put a control text before what the user says last; without one nothing changes."""
    turns = tuple(messages)
    if not control:
        return turns
    last = max((n for n, turn in enumerate(turns) if turn.role == USER), default=len(turns) - 1)
    told = replace(turns[last], content=control + turns[last].content)
    return (*turns[:last], told, *turns[last + 1 :])
