"""Fields, next to a prompt's text, that belong to the question: they become turns of it.

`system` is the system's turn, as in Intel's Orca pairs and ShareGPT's rows; `history` has the turns
before, as in LLaMA-Factory's rows; the text of `input` (Alpaca) or `context` (Dolly) follows the
prompt's. Turns that are written in one text, as in HH-RLHF (`Human:`), are split.
"""

import re
from collections.abc import Sequence
from typing import cast

from ...stores.records import Message
from .conversations import conversation, speaker_of, split_answer
from .file_row import Row
from .row_texts import kind_of, text_of
from .text_lines import RowError

SYSTEM = ("system", "system_prompt", "system_message")
HISTORY, INPUT, CONTEXT = "history", "input", "context"
CONTEXT_FIELDS = (*SYSTEM, HISTORY, INPUT, CONTEXT)
OTHER_MEDIA = ("tools", "functions", "image", "images", "audio", "audios", "video", "videos")
TRANSCRIPT = re.compile(r"\s*Human:.*\n\nAssistant:\s*", re.DOTALL)
SPEAKER = re.compile(r"(?:^\s*|\n\n)(Human|Assistant):")
SPEAKERS = {"Human": "user", "Assistant": "assistant"}
BOTH = ("user", "assistant")


def with_context(row: Row, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the turns of a prompt with the turns from the row's other fields.

    Raises:
        RowError: if such a field cannot be read, or contradicts the turns.
    """
    for name in OTHER_MEDIA:
        if row.glance(name) not in (None, "", [], {}):
            raise RowError(
                f"{name!r} is part of the prompt, and lpfloop reads text prompts only: leave such "
                "rows out, or remove the field"
            )
    system = turns[:1] if turns[0].role == "system" else ()
    rest = turns[len(system) :]
    earlier = [turn for name in (HISTORY, CONTEXT) for turn in _earlier(row, name)]
    if all(turn in rest for turn in earlier):
        earlier = []
    for name in SYSTEM:
        if row.glance(name) not in (None, ""):
            given = Message(role="system", content=text_of(row[name], name))
            if system and system[0].content.strip() != given.content.strip():
                raise RowError(f"{name!r} differs from the system's turn; keep one of the two")
            system = system or (given,)
    return (*system, *earlier, *rest)


def with_text_below(row: Row, name: str, text: str, between: str) -> str:
    """Return the text of the field `name`, followed by the texts of `input` and `context`."""
    for field in (INPUT, CONTEXT):
        value = row.glance(field)
        if field == name or isinstance(value, list) or not _is_filled(value):
            continue
        more = text_of(row[field], field)
        # Some data sets contain a prompt's parts in addition to the whole.
        if name == "instruction" or more not in text:
            text = f"{text}{between}{more}"
    return text


def split_turns(text: str) -> list[object] | None:
    """Return the turns that are written in one text, up to the user's last; None for one turn."""
    if not TRANSCRIPT.fullmatch(text):
        return None
    parts = SPEAKER.split(text)[1:]
    turns: list[object] = [
        Row({"role": SPEAKERS[who], "content": turn.strip()})
        for who, turn in zip(parts[::2], parts[1::2], strict=True)
    ]
    # The last mark asks for the answer.
    return turns[:-1] if parts[-2] == "Assistant" and not parts[-1].strip() else turns


def require_agreement(row: Row, names: Sequence[str], turns: Sequence[Message]) -> None:
    """Require that other fields that could contain a prompt agree with its turns.

    Raises:
        RowError: naming the field.
    """
    for name in names:
        value = row.glance(name)
        if not _is_filled(value) or not isinstance(value, str | list):
            continue
        if isinstance(value, str):
            agrees = any(value.strip() in turn.content for turn in turns)
        else:
            agrees = all(
                turn in turns for turn in _turns_before_answer(cast("list[object]", value), name)
            )
        if not agrees:
            raise RowError(f"{name!r} differs from the conversation that was answered; keep one")
        row.get(name)


def _turns_before_answer(value: list[object], name: str) -> Sequence[Message]:
    """Return the turns of a conversation before its answer, if it ends with one."""
    last = value[-1]
    ends = isinstance(last, Row) and speaker_of(last) == "assistant"
    return split_answer(value, name)[0] if ends else conversation(value, name)


def _is_filled(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [])


def _earlier(row: Row, name: str) -> list[Message]:
    """Return the turns before a prompt: objects, or pairs of a user's and a model's text."""
    value = row.glance(name)
    if not _is_filled(value) or (name == CONTEXT and not isinstance(value, list)):
        return []
    if not isinstance(value, list):
        raise RowError(f"{name!r} must be a list of turns, but is {kind_of(value)}")
    turns = list[object]()
    for n, entry in enumerate(cast("list[object]", row[name]), start=1):
        pair = cast("list[object]", entry) if isinstance(entry, list) else None
        if pair is not None and len(pair) != len(BOTH):
            raise RowError(f"'{name}[{n}]' must be a user text and an assistant text")
        spoken = zip(BOTH, pair or (), strict=False)
        turns += [entry] if pair is None else [Row({"role": r, "content": c}) for r, c in spoken]
    return list(conversation(turns, name))
