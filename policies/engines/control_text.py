"""Control texts: written before a prompt to say how good the answer shall be."""

from collections.abc import Sequence
from dataclasses import replace

from ...stores.records import Message

USER = "user"


def conditioned(messages: Sequence[Message], control: str) -> tuple[Message, ...]:
    """Put a control text before the user's last message; an empty one changes nothing."""
    turns = tuple(messages)
    if not control:
        return turns
    last = max((n for n, turn in enumerate(turns) if turn.role == USER), default=len(turns) - 1)
    told = replace(turns[last], content=control + turns[last].content)
    return (*turns[:last], told, *turns[last + 1 :])
