"""One row of a prompts file becomes a prompt, or is refused with the reason.

The text is under `prompt`, `question`, `problem` or `instruction`, a conversation under `messages`,
`prompt` or ShareGPT's `conversations`, and other fields may add turns (`conversations`). Rows of
GSM8K and MATH (`question` and `answer`, `problem` and `solution`) are read as math with a
reference. IFEval's `instruction_id_list`, with the parameters of each in `kwargs`, become checks.
verl's `reward_model` holds the reference, `ability` the task. Unused fields are counted.
`RowShape` is the user's description of other forms.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import Literal, cast, get_args

from ...configs.mistakes import ConfigError
from ...critics.checks import valid_check
from ...critics.math_answers import is_mathematical
from ...stores.keys import row_id
from ...stores.records import Check, Message, Prompt, PromptPart, Split
from .conversations import (
    CONTEXT,
    INPUT,
    Turns,
    as_json,
    prompt_turns,
    require_agreement,
    split_turns,
    with_context,
    with_text_below,
)
from .file_row import (
    Row,
    RowError,
    identity_field,
    kind_of,
    list_of,
    one_of,
    optional_text,
    text_of,
)
from .rating_scale import plain_number

CORRECT, INCORRECT = LISTED = ("correct_answers", "incorrect_answers")
"""The fields with the answers that a data set lists, as TruthfulQA and UltraFeedback do."""
NO_ANSWER = "None"
"""UltraFeedback's entry for an empty list."""
OUTSIDE: Mapping[str, Split] = {"val": "dev", "eval": "held-out"}
"""The parts of published data that are not trained on, and the splits that they are here."""
SPLITS: tuple[Split, ...] = ("train", "dev", "held-out")
_PARTS: Mapping[str, PromptPart] = {name: name for name in get_args(PromptPart)}
TEXT_FIELDS = ("messages", "conversations", "prompt", "question", "problem", "instruction")
REFERENCE_FIELDS = {"question": "answer", "problem": "solution"}
"""The field with the worked solution, by the field with the problem, in data sets of math."""
GENERAL, MATH = "general", "math"
INSTRUCTIONS, PARAMETERS = "instruction_id_list", "kwargs"
Inputs = Literal["joined", "headed"]
HEADED: Mapping[Inputs, str] = {"joined": "\n\n", "headed": "\n\n### Input:\n"}
"""The text between an Alpaca row's instruction and its input."""


def parted_input(text: str) -> tuple[str, str | None]:
    """Return the instruction of a prompt, and the input below its heading, if it has one."""
    instruction, heading, given = text.partition(HEADED["headed"])
    return instruction, given if heading else None


class NoPromptError(RowError):
    """A row without any of the fields that can contain a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """How rows differ from the known forms.

    `fields` maps the names here to the rows' fields; `input` is how an Alpaca row's input follows
    its instruction. With `turns` "first", the prompt of a conversation is its system turn, if any,
    and the user's first turn; with "last", it ends with the user's last turn.
    """

    turns: Turns = "all"
    input: Inputs = "joined"
    fields: Mapping[str, str] = field(default_factory=dict[str, str])

    def rename_fields(self, row: Row) -> Row:
        """Return a row with its fields under their names here.

        Raises:
            RowError: if it lacks such a field.
        """
        if not self.fields:
            return row
        for name, own in self.fields.items():
            if own not in row:
                has = ", ".join(map(repr, row))[:200]
                raise RowError(f"no field {own!r} for prompts.fields.{name} (the row has {has})")
        others = TEXT_FIELDS if "prompt" in self.fields else ()
        taken = {*self.fields.values(), *others}
        mapped = {name: row[own] for name, own in self.fields.items()}
        return row.without(taken).having(mapped)


AS_IT_IS = RowShape()


def to_prompt(
    row: Row, *, task: str | None, split: Split, source: str, shape: RowShape = AS_IT_IS
) -> Prompt:
    """Return the prompt of a row; `task`, `split` and `source` are the defaults.

    Raises:
        RowError: if the row cannot be read.
    """
    right, wrong = (listed_answers(row, name) for name in LISTED)
    row = _with_reference(row)
    name_of_text = prompt_field(row)
    messages = _messages(row, name_of_text, shape)
    own = REFERENCE_FIELDS.get(name_of_text)
    worked = _worked_answer(row, own) if own else None
    reference = _worked_answer(row, "reference") or worked
    checks = tuple(map(_check, (*list_of(row, "checks"), *_listed_checks(row))))
    name = optional_text(row, "task") or task or _guessed_task(worked)
    own_split, part = _split_and_part(row)
    return Prompt(
        prompt_id=identity_field(row, "prompt_id") or content_id(messages, reference, checks, name),
        task=name,
        split=own_split or split,
        messages=messages,
        reference=reference,
        checks=checks,
        source=_source(row) or source,
        family=optional_text(row, "family"),
        cluster=identity_field(row, "cluster"),
        part=part,
        correct_answers=right,
        incorrect_answers=wrong,
    )


def listed_answers(row: Row, name: str) -> tuple[str, ...] | None:
    """Return the answers in a field that lists them, or has them with semicolons between them."""
    value = row.get(name)
    if isinstance(value, str):
        texts = [part.strip() for part in value.split(";")]
    elif value is None or isinstance(value, list):
        texts = [text_of(each, name).strip() for each in cast("list[object]", value or [])]
    else:
        raise RowError(f"{name!r} must be a list of texts, but is {kind_of(value)}")
    return tuple(dict.fromkeys(text for text in texts if text and text != NO_ANSWER)) or None


def _guessed_task(worked: str | None) -> str:
    """Return the task by the answer that is there: an answer in words is not compared as math."""
    return MATH if worked is not None and is_mathematical(worked) else GENERAL


def _worked_answer(row: Row, name: str) -> str | None:
    """Return the answer of a problem, which is a number in some data sets."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return optional_text(row, name)
    number = value if isinstance(value, int | float | Decimal) else float(value)
    whole = isinstance(number, int) or (math.isfinite(number) and number == int(number))
    # As people write it: `2` for 2.0.
    return str(int(number)) if whole else str(number)


def _listed_checks(row: Row) -> Iterator[Row]:
    """Yield the row's instructions as checks with a kind and an argument.

    Raises:
        RowError: if the two lists do not belong together.
    """
    kinds, parameters = list_of(row, INSTRUCTIONS), list_of(row, PARAMETERS)
    if len(kinds) != len(parameters):
        raise RowError(
            f"{INSTRUCTIONS!r} names {len(kinds)} instructions, and {PARAMETERS!r} has parameters "
            f"for {len(parameters)}; give each instruction its own, {{}} for none"
        )
    for kind, given in zip(kinds, parameters, strict=True):
        yield Row({"kind": kind, "argument": {} if given is None else given})


def _with_reference(row: Row) -> Row:
    """Return a row of verl with its reference, task and source under their names here."""
    scored = row.glance("reward_model")
    if not isinstance(scored, Row) or "ground_truth" not in scored or "reference" in row:
        return row
    row.get("reward_model")
    given = scored["ground_truth"]
    named = {"task": "ability", "source": "data_source"}
    mapped = {name: row[own] for name, own in named.items() if name not in row and own in row}
    return row.having({"reference": None if given == "" else given, **mapped})


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


def _split_and_part(row: Row) -> tuple[Split | None, PromptPart | None]:
    """Return a row's split, and the part that it serves in training, if it names them.

    A part that is not trained on is a split; the row may not name another one.
    """
    split = one_of(row, "split", SPLITS)
    part = one_of(row, "part", (*_PARTS, *OUTSIDE))
    if part is None:
        return split, None
    if part in _PARTS:
        return split, _PARTS[part]
    outside = OUTSIDE[part]
    if split not in (None, outside):
        raise RowError(f"'part' is {part}, which is the split {outside}, but 'split' is {split}")
    return outside, None


def _source(row: Row) -> str | None:
    """Return the name of a row's data set, if the field `source` holds one."""
    value = row.glance("source")
    return text_of(row["source"], "source") if isinstance(value, str) and value else None


def prompt_field(row: Row) -> str:
    """Return the one field that holds the prompt.

    Raises:
        RowError: if none does, or several do.
    """
    present = [name for name in TEXT_FIELDS if _asks(row.glance(name))]
    if len(present) > 1:
        raise RowError(f"both {present[0]!r} and {present[1]!r} hold a prompt; keep one")
    if present:
        return present[0]
    if _asks(row.glance(INPUT)):
        return INPUT
    if isinstance(row.glance(CONTEXT), list) and row.glance(CONTEXT):
        return CONTEXT
    there = [name for name in TEXT_FIELDS if name in row]
    filled = next((name for name in there if row.glance(name) is not None), None)
    if filled is not None:
        return filled
    if there:
        raise RowError(f"no prompt: {there[0]!r} is empty")
    names = ", ".join(TEXT_FIELDS)
    has = ", ".join(repr(name) for name in row) or "none"
    raise NoPromptError(f"no prompt; name its field one of {names} (the row has {has[:200]})")


def _asks(value: object) -> bool:
    """Whether a value can be a prompt: a text, a conversation, or one turn."""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, list | Row) and value not in ([], {})


def _messages(row: Row, name: str, shape: RowShape) -> tuple[Message, ...]:
    value = row[name]
    turns = [cast("object", value)] if isinstance(value, Row) else value
    if isinstance(value, str):
        if name in ("messages", "conversations"):
            raise RowError(f"{name!r} must be a list of messages, but is {kind_of(value)}")
        turns = split_turns(value)
    if not isinstance(turns, list):
        below = with_text_below(row, name, text_of(value, name), HEADED[shape.input])
        return with_context(row, (Message(role="user", content=below),))
    found = prompt_turns(cast("list[object]", turns), name, shape.turns)
    others = [f for f in (INPUT, CONTEXT) if f != name and isinstance(row.glance(f), str)]
    require_agreement(row, others, found)
    return with_context(row.without([name]), found)


def _check(item: object) -> Check:
    """Return a check; its argument is a text, or an object with the parameters of the kind."""
    if not isinstance(item, dict):
        raise RowError("each of 'checks' must be an object with kind and argument")
    row = cast("Row", item)
    kind, argument = text_of(row.get("kind"), "checks.kind"), row.get("argument", "")
    if isinstance(argument, dict):
        argument = json.dumps(argument, default=plain_number)
    if not isinstance(argument, str):
        raise RowError(f"'checks.argument' must be a text or an object, not {kind_of(argument)}")
    try:
        check = valid_check(kind, argument)
    except ConfigError as error:
        raise RowError(str(error)) from error
    return replace(check, argument=check.argument and text_of(check.argument, "checks.argument"))
