"""One row of a prompts file becomes a prompt, or is refused with the reason.

The text is under `prompt`, `question`, `problem` or `instruction`, a conversation under `messages`,
`prompt` or ShareGPT's `conversations`; GSM8K's and MATH's own rows (`question` and `answer`,
`problem` and `solution`) are read as math with a reference, SVAMP's and MAWPS's with their story
(`word_problems`), IFEval's with checks. Fields that nothing is made of are told. `RowShape` is what
a user says of rows that are in none of these forms.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from ...configs.schema import ConfigError
from ...critics.checks import valid_check
from ...critics.math_answers import is_mathematical
from ...stores.keys import Json, row_id
from ...stores.records import Check, Message, Prompt, Split
from .file_row import Row
from .ifeval_fields import listed_checks
from .text_lines import RowError
from .word_problems import in_lower_case, number_text, whole_problem

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
SPLITS: tuple[Split, ...] = ("train", "dev", "held-out")
TEXT_FIELDS = (
    "messages",
    "conversations",
    "turns",
    "prompt",
    "question",
    "problem",
    "instruction",
)
REFERENCE_FIELDS = {"question": "answer", "problem": "solution"}
"""The field with the worked solution, by the field with the problem, in data sets of math."""
GENERAL, MATH = "general", "math"
SURROGATE = re.compile("[\ud800-\udfff]")
Turns = Literal["all", "first", "last"]
Inputs = Literal["joined", "headed"]
HEADED: Mapping[Inputs, str] = {"joined": "\n\n", "headed": "\n\n### Input:\n"}
"""What stands between an Alpaca row's instruction and its input."""


class NoPromptError(RowError):
    """A row whose fields have none of the names that a prompt's can have."""


class NoUserTurnError(RowError):
    """A conversation in which the user says nothing first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """How rows differ from the known forms.

    `fields` names the field of the rows that holds what is called so here; `input` says how an
    Alpaca row's input follows its instruction. With the `first` of the turns a conversation is its
    system turn, if it has one, and the user's first turn; with the `last`, it ends with the user's
    last turn.
    """

    turns: Turns = "all"
    input: Inputs = "joined"
    fields: Mapping[str, str] = field(default_factory=dict[str, str])

    def named(self, row: Row) -> Row:
        """Return a row with its fields under their names here.

        Raises:
            RowError: if it has no such field.
        """
        if not self.fields:
            return row
        for name, own in self.fields.items():
            if own not in row:
                has = ", ".join(map(repr, row))[:200]
                raise RowError(f"no field {own!r} for prompts.fields.{name} (the row has {has})")
        taken = {*self.fields.values(), *(TEXT_FIELDS if "prompt" in self.fields else ())}
        return row.without(taken).having({name: row[own] for name, own in self.fields.items()})


AS_IT_IS = RowShape()


def text_of(value: object, name: str) -> str:
    """Return a text that can be stored and shown."""
    if not isinstance(value, str):
        raise RowError(f"{name!r} must be a text, but is {kind_of(value)}")
    if not value.strip():
        raise RowError(f"{name!r} is empty")
    if "\0" in value:
        raise RowError(f"{name!r} holds a NUL character; remove it")
    if SURROGATE.search(value):
        raise RowError(f"{name!r} holds half a character (a lone surrogate); repair the text")
    return value


def kind_of(value: object) -> str:
    """Return the type of a JSON value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def optional_text(row: Row, name: str) -> str | None:
    """Return a text that may be absent or null."""
    value = row.get(name)
    return None if value is None else text_of(value, name)


def to_prompt(
    row: Row, *, task: str | None, split: Split, source: str, shape: RowShape = AS_IT_IS
) -> Prompt:
    """Return the prompt of a row; `task`, `split` and `source` are the defaults.

    Raises:
        RowError: if the row cannot be read.
    """
    row = whole_problem(known_fields(row))
    name_of_text = prompt_field(row)
    messages = _messages(row, name_of_text, shape)
    own = REFERENCE_FIELDS.get(name_of_text)
    worked = _worked(row, own) if own else None
    reference = _reference(row, name_of_text) or worked
    checks = (*_checks(row.get("checks")), *map(_check, listed_checks(row)))
    name = optional_text(row, "task") or task or _guessed_task(worked)
    return Prompt(
        prompt_id=identity_field(row, "prompt_id") or content_id(messages, reference, checks, name),
        task=name,
        split=_split(row) or split,
        messages=messages,
        reference=reference,
        checks=checks,
        source=_source(row) or source,
        family=optional_text(row, "family"),
        cluster=identity_field(row, "cluster"),
    )


def known_fields(row: Row) -> Row:
    """Return a row whose prompt is under a name in lower case, as a prompt's fields are here."""
    if any(name in row for name in TEXT_FIELDS):
        return row
    lower = in_lower_case(row)
    return lower if any(name in lower for name in TEXT_FIELDS) else row


def _guessed_task(worked: str | None) -> str:
    """Return the task by the answer that is there: an answer in words is not compared as math."""
    return MATH if worked is not None and is_mathematical(worked) else GENERAL


def _worked(row: Row, name: str) -> str | None:
    """Return the answer of a problem, which some data sets hold as a number."""
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return optional_text(row, name)


def _reference(row: Row, name_of_text: str) -> str | None:
    """Return the reference; MT-bench has a list of them, one a turn."""
    value = row.get("reference")
    if name_of_text == "turns" and isinstance(value, list):
        first = cast("list[object]", value)[:1]
        return None if first in ([], [""]) else text_of(first[0], "reference[1]")
    return optional_text(row, "reference")


def content_id(
    messages: Sequence[Message], reference: str | None, checks: Sequence[Check], task: str
) -> str:
    """Return the id of a prompt without one: equal prompts get equal ids."""
    return row_id(
        "prompt",
        {
            "messages": as_json(messages),
            "reference": reference,
            "checks": [[check.kind, check.argument] for check in checks],
            "task": task,
        },
    )


def as_json(messages: Sequence[Message]) -> Json:
    """Return a conversation as plain data, for hashing."""
    return [[message.role, message.content] for message in messages]


def identity_field(row: Row, name: str) -> str | None:
    """Return an id, or a name, that may be absent: a text, or a whole number."""
    value = row.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return optional_text(row, name)


def _split(row: Row) -> Split | None:
    value = row.get("split")
    if value is None:
        return None
    for split in SPLITS:
        if value == split:
            return split
    named = f"{', '.join(SPLITS[:-1])} or {SPLITS[-1]}"
    raise RowError(f"'split' must be {named}, but is {json.dumps(value)[:60]}")


def _source(row: Row) -> str | None:
    """Return the name of a row's data set, if the field `source` holds one."""
    value = row.get("source")
    return text_of(value, "source") if isinstance(value, str) and value else None


def prompt_field(row: Row) -> str:
    """Return the one field that holds the prompt."""
    present = [name for name in TEXT_FIELDS if row.get(name) is not None]
    empty = [name for name in TEXT_FIELDS if name in row]
    if not present and empty:
        raise RowError(f"no prompt: {empty[0]!r} is empty")
    if not present:
        names = ", ".join(TEXT_FIELDS)
        has = ", ".join(repr(name) for name in row) or "none"
        raise NoPromptError(f"no prompt; name its field one of {names} (the row has {has[:200]})")
    if len(present) > 1:
        raise RowError(f"both {present[0]!r} and {present[1]!r} hold a prompt; keep one")
    return present[0]


def _messages(row: Row, name: str, shape: RowShape) -> tuple[Message, ...]:
    value = row[name]
    if isinstance(value, list):
        said = cast("list[object]", value)
        if name == "turns":
            said = _of_user(said[:1] if shape.turns == "first" else said)
        match shape.turns:
            case "first":
                return _first_turn(said, name)
            case "last":
                return _last_turn(said, name)
            case "all":
                return _asked(said, name)
    if name in ("messages", "conversations", "turns"):
        raise RowError(f"{name!r} must be a list of messages, but is {kind_of(value)}")
    text = text_of(value, name)
    if name == "instruction" and row.get("input") not in (None, ""):
        # Alpaca's rows keep the input of the instruction in a field of its own.
        text = f"{text}{HEADED[shape.input]}{text_of(row['input'], 'input')}"
    return (Message(role="user", content=text),)


def _asked(turns: list[object], name: str) -> tuple[Message, ...]:
    """Return a conversation that waits for an answer."""
    messages = conversation(turns, name)
    if messages[-1].role != "user":
        raise RowError(
            f"{name!r} must end with a message of the user; prompts.turns=first takes the user's "
            "first turn alone, prompts.turns=last leaves out what follows the user's last, and "
            "`lpfloop import --format candidates` imports answers, too"
        )
    return messages


def _first_turn(turns: list[object], name: str) -> tuple[Message, ...]:
    """Return the user's first turn, below the system's if that comes first; the rest is not read.

    Raises:
        NoUserTurnError: if there is none, or it is empty, as in some rows of published data.
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
    raise NoUserTurnError(f"{name!r} holds no turn of the user that says something")


def _last_turn(turns: list[object], name: str) -> tuple[Message, ...]:
    """Return the conversation up to the user's last turn.

    Raises:
        NoUserTurnError: if the user says nothing.
    """
    spoken = [_spoken(turn, f"{name}[{n}]")[0] for n, turn in enumerate(turns, start=1)]
    if "user" not in spoken:
        raise NoUserTurnError(f"{name!r} holds no turn of the user")
    return conversation(turns[: len(spoken) - spoken[::-1].index("user")], name)


def _of_user(turns: list[object]) -> list[object]:
    """Return turns that are all the user's, as MT-bench's: one, as nothing answers it."""
    if len(turns) > 1:
        raise RowError(
            f"'turns' holds {len(turns)} turns of the user and no answers between them; "
            "prompts.turns=first takes the first alone"
        )
    return [{"role": "user", "content": turn} for turn in turns]


def conversation(turns: list[object], field: str) -> tuple[Message, ...]:
    """Return a conversation whose turns have role and content, or ShareGPT's from and value.

    Raises:
        RowError: if it is empty, or a turn cannot be read.
    """
    if not turns:
        raise RowError(f"{field!r} holds no message")
    return tuple(_message(turn, f"{field}[{n}]") for n, turn in enumerate(turns, start=1))


def _message(turn: object, where: str) -> Message:
    role, content = _spoken(turn, where)
    return Message(role=role, content=text_of(content, f"{where}.content"))


def _spoken(turn: object, where: str) -> tuple[str, object]:
    """Return who speaks in a turn, and what is in the place of the text."""
    if not isinstance(turn, dict):
        raise RowError(f"{where!r} must be an object with role and content")
    fields = cast("Row", turn)
    if "from" in fields:
        role, content = SHAREGPT.get(str(fields["from"])), fields.get("value")
        known = SHAREGPT
    else:
        role, content = fields.get("role"), fields.get("content")
        known = ROLES
    if role not in ROLES:
        raise RowError(f"{where!r}: the role must be one of {', '.join(known)}")
    return str(role), content


def _checks(value: object) -> tuple[Check, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RowError(f"'checks' must be a list, but is {kind_of(value)}")
    return tuple(map(_check, cast("list[object]", value)))


def _check(item: object) -> Check:
    """Return a check; its argument is a text, or an object with the parameters of the kind."""
    if not isinstance(item, dict):
        raise RowError("each of 'checks' must be an object with kind and argument")
    told = cast("Row", item)
    kind, argument = text_of(told.get("kind"), "checks.kind"), told.get("argument", "")
    if isinstance(argument, dict):
        argument = json.dumps(argument)
    if not isinstance(argument, str):
        raise RowError(f"'checks.argument' must be a text or an object, not {kind_of(argument)}")
    try:
        check = valid_check(kind, argument)
    except ConfigError as error:
        raise RowError(str(error)) from error
    return replace(check, argument=check.argument and text_of(check.argument, "checks.argument"))
