"""Conversations in a user's rows: their turns, and the part that is the prompt.

A turn has `role` and `content`, or `from` and `value` as in ShareGPT's form. Other fields of the
row may add turns: `system` is the system's turn, as in Intel's Orca pairs and ShareGPT's rows;
`history` has the turns before, as in LLaMA-Factory's rows; the text of `input` (Alpaca) or
`context` (Dolly) follows the prompt's. Turns that are written in one text, as in HH-RLHF
(`Human:`), are split.
"""

import re
from collections.abc import Sequence
from typing import Literal, cast

from ...stores.keys import Json
from ...stores.records import Message
from .file_row import Row, RowError, kind_of, text_of

ROLES = ("system", "user", "assistant")
SHAREGPT = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "system": "system",
}
"""The roles of `conversations`, whose turns have `from` and `value`."""
CALLS = ("tool_calls", "function_call")
"""Fields of a turn, in addition to its text, that a policy here cannot generate."""
Turns = Literal["all", "first", "last"]


class NoUserTurnError(RowError):
    """A conversation without a first turn by the user."""


def as_json(messages: Sequence[Message]) -> Json:
    """Return a conversation as plain data, for hashing."""
    return [[message.role, message.content] for message in messages]


def prompt_turns(turns: list[object], name: str, which: Turns) -> tuple[Message, ...]:
    """Return the turns that are the prompt, of the field `name`.

    Raises:
        RowError: if they cannot be read, or do not wait for an answer.
    """
    if which == "first":
        return _first_turn(turns, name)
    if which == "last":
        return _last_turn(turns, name)
    messages = conversation(turns, name)
    if messages[-1].role != "user":
        raise RowError(
            f"{name!r} must end with a user message; prompts.turns=first takes the user's "
            "first turn alone, prompts.turns=last leaves out the messages after the user's last, "
            "and `lpfloop import --as candidates` imports answers, too"
        )
    return messages


def _first_turn(turns: list[object], name: str) -> tuple[Message, ...]:
    """Return the user's first turn, below the system's if that comes first; the rest is ignored.

    Raises:
        NoUserTurnError: if that turn is missing or empty, as in some rows of published data.
    """
    before = list[Message]()
    for number, turn in enumerate(turns, start=1):
        where = f"{name}[{number}]"
        role, content = _spoken(turn, where)
        if role == "user" and (content is None or not str(content).strip()):
            break
        if role == "user" or (role == "system" and number == 1):
            before.append(Message(role=role, content=text_of(content, f"{where}.content")))
        if role == "user":
            return tuple(before)
    raise NoUserTurnError(f"{name!r} has no user turn with text")


def _last_turn(turns: list[object], name: str) -> tuple[Message, ...]:
    """Return the conversation up to the user's last turn.

    Raises:
        NoUserTurnError: if it lacks a turn of the user.
    """
    spoken = [_spoken(turn, f"{name}[{n}]")[0] for n, turn in enumerate(turns, start=1)]
    if "user" not in spoken:
        raise NoUserTurnError(f"{name!r} holds no turn of the user")
    return conversation(turns[: len(spoken) - spoken[::-1].index("user")], name)


def conversation(turns: list[object], field: str) -> tuple[Message, ...]:
    """Return a conversation whose turns have role and content, or ShareGPT's from and value.

    Raises:
        RowError: if it is empty, or a turn cannot be read.
    """
    if not turns:
        raise RowError(f"{field!r} holds no message")
    return tuple(_message(turn, f"{field}[{n}]") for n, turn in enumerate(turns, start=1))


def split_answer(value: list[object] | Row, field: str) -> tuple[tuple[Message, ...], str]:
    """Return the turns before the answer that ends a conversation, and the answer.

    A single turn is allowed. The answer may be empty, as a model's can be.

    Raises:
        RowError: if a turn cannot be read, or the last is not the assistant's.
    """
    turns = [cast("object", value)] if isinstance(value, Row) else value
    where = f"{field}[{len(turns)}]"
    role, content = _spoken(turns[-1], where) if turns else ("", None)
    if role != "assistant":
        raise RowError(f"{field!r} must end with an assistant message")
    before = conversation(turns[:-1], field) if turns[1:] else ()
    blank = content is None or (isinstance(content, str) and not content.strip())
    return before, "" if blank else text_of(content, f"{where}.content")


def speaker_of(turn: Row) -> str | None:
    """Return the role of a turn, as in messages; None if it is unknown."""
    role = SHAREGPT.get(str(turn["from"])) if "from" in turn else turn.get("role")
    return next((known for known in ROLES if known == role), None)


def _message(turn: object, where: str) -> Message:
    role, content = _spoken(turn, where)
    return Message(role=role, content=text_of(content, f"{where}.content"))


def _spoken(turn: object, where: str) -> tuple[str, object]:
    """Return a turn's role, and its value in place of the text."""
    if not isinstance(turn, dict):
        raise RowError(f"{where!r} must be an object with role and content")
    fields = cast("Row", turn)
    called = next((name for name in CALLS if fields.get(name)), None)
    if called is not None:
        raise RowError(f"{where!r} has {called!r}, and lpfloop reads texts only; leave the row out")
    shared = "from" in fields
    role, content = speaker_of(fields), fields.get("value" if shared else "content")
    if role is None:
        known = SHAREGPT if shared else ROLES
        raise RowError(f"{where!r}: the role must be one of {', '.join(known)}")
    return role, content


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
    spoken = transcript_turns(text)
    if spoken[-1] == ("assistant", ""):
        # The last mark asks for the answer.
        spoken.pop()
    return [Row({"role": role, "content": content}) for role, content in spoken]


def transcript_turns(text: str) -> list[tuple[str, str]]:
    """Return the role and the text of each turn of a transcript."""
    parts = SPEAKER.split(text)[1:]
    return [
        (SPEAKERS[who], turn.strip()) for who, turn in zip(parts[::2], parts[1::2], strict=True)
    ]


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
        if not isinstance(entry, list):
            turns.append(entry)
            continue
        pair = cast("list[object]", entry)
        if len(pair) != len(BOTH):
            raise RowError(f"'{name}[{n}]' must be a user text and an assistant text")
        turns += [Row({"role": r, "content": c}) for r, c in zip(BOTH, pair, strict=True)]
    return list(conversation(turns, name))
