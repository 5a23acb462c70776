"""The fields of imported rows, read strictly: answers, remarks, votes, models, annotators.

An imported answer, as any that the run did not sample, becomes an external candidate.
"""

import json
from collections.abc import Sequence
from typing import cast

from ...stores.keys import Json, row_id
from ...stores.records import Candidate, Message, Preferred, storable
from .conversations import split_answer
from .file_row import kind_of, optional_text
from .files import Row, RowError
from .judged_candidates import HUMAN
from .rating_scale import number

ANSWER_FIELDS = ("response", "completion", "output")
MODEL_FIELDS = ("model", "generator")
CRITIC_FIELDS = ("critic", "judge")
FILED = {
    "family": ("family", "category", "subject", "motivation_app"),
    "source": ("source", "dataset"),
}
"""The fields that may hold a prompt's family and its source, in their order."""
FIRST, BETWEEN, SECOND = 1, 1.5, 2
TRUTHS = {"true": True, "false": False}
LABEL_LEVELS = (1, 0, -1)
PLAIN_VOTES = (0, FIRST, BETWEEN, SECOND)


def vote_of(given: object) -> Preferred | None:
    """Return which of two a vote prefers: 1, 2 or a number between; 0 and 1.5 are ties."""
    value = number(given)
    if value is None or not (value == 0 or FIRST <= value <= SECOND):
        return None
    if value in (0, BETWEEN):
        return "tie"
    return "first" if value < BETWEEN else "second"


def side_of(row: Row, name: str) -> tuple[tuple[Message, ...], str]:
    """Return the messages before a chosen or rejected answer, and the answer, which may be empty.

    Raises:
        RowError: if it cannot be read, or is several answers.
    """
    value = row.get(name)
    if value is None and name in row:
        return (), ""
    if isinstance(value, list) and any(isinstance(v, str) for v in cast("list[object]", value)):
        raise RowError(f"{name!r} is a list of answers; write a row for each pair of two answers")
    if isinstance(value, list | Row):
        return split_answer(cast("list[object] | Row", value), name)
    return (), text_or_empty(value, name)


def answer_of(row: Row) -> str | None:
    """Return the answer of a row, or None without one."""
    present = [name for name in ANSWER_FIELDS if row.get(name) is not None]
    if len(present) > 1:
        raise RowError(f"both {present[0]!r} and {present[1]!r} hold an answer; keep one")
    if not present:
        return None
    value = row[present[0]]
    if not isinstance(value, list | Row):
        return text_or_empty(value, present[0])
    before, answer = split_answer(cast("list[object] | Row", value), present[0])
    if before:
        raise RowError(
            f"{present[0]!r} holds more than the answer; put the turns before it into the prompt, "
            "or the whole conversation into 'messages'"
        )
    return answer


def score_of(row: Row, name: str) -> float | None:
    """Return a score, or None; a score that is not a number counts as not used."""
    given = row.glance(name)
    value = number(given)
    if value is not None or given in (None, ""):
        row.get(name)
    return value


def truth_of(row: Row, name: str) -> bool | None:
    """Return a label: true or false, also as a text, or 1 (right), 0 or -1; None for others."""
    given = row.glance(name)
    if isinstance(given, str) and given.strip().lower() in TRUTHS:
        right = TRUTHS[given.strip().lower()]
    elif isinstance(given, bool):
        right = given
    elif number(given) in LABEL_LEVELS:
        right = number(given) == 1
    else:
        return None
    row.get(name)
    return right


def text_or_empty(value: object, name: str) -> str:
    """Return an answer, which may be empty."""
    if not isinstance(value, str):
        raise RowError(f"{name!r} must be a text, but is {kind_of(value)}")
    return storable(value)


def published_text(value: object, name: str) -> str:
    """Return an answer, which may have been published as a JSON value: `true`, or a number."""
    stored = isinstance(value, bool | int | float)
    return text_or_empty(json.dumps(value) if stored else value, name)


def remark_of(row: Row, name: str) -> str | None:
    """Return a remark, which may be absent or empty."""
    value = row.get(name)
    return None if value is None else text_or_empty(value, name)


def model_of(row: Row) -> str | None:
    """Return the model that answered."""
    return next((m for n in MODEL_FIELDS if (m := optional_text(row, n))), None)


def critic_of(row: Row) -> str | None:
    """Return the annotator: a person, marked as one, or a model."""
    person = optional_text(row, "annotator")
    if person:
        return human(person)
    return next((c for n in CRITIC_FIELDS if (c := optional_text(row, n))), None)


def human(name: str) -> str:
    """Return a person's name as a critic or annotator in the lake."""
    return name if name.startswith(HUMAN) else f"{HUMAN}{name}"


def fields_of(row: Row, name: str) -> Row:
    """Return the fields of an object that may be absent; null fields count as absent."""
    value = row.get(name)
    if value is None:
        return Row()
    fields = object_of(value, name)
    return fields.without(field for field in fields if fields.glance(field) is None)


def object_of(value: object, where: str) -> Row:
    """Return `value`, which must be a JSON object."""
    if not isinstance(value, Row):
        raise RowError(f"{where!r} must be an object, but is {kind_of(value)}")
    return value


def add_family(row: Row) -> Row:
    """Return a row with its category as the family, and its data set as the source."""
    named = {name: _first_text(row, given) for name, given in FILED.items()}
    return row.having({name: text for name, text in named.items() if text is not None})


def _first_text(row: Row, names: Sequence[str]) -> str | None:
    for name in names:
        text = row.glance(name)
        if isinstance(text, str) and text.strip():
            row.get(name)
            return text
    return None


def external_candidate(
    identity: Json,
    *,
    prompt_id: str,
    text: str,
    source: str,
    model: str,
    iteration: int = 0,
    principle: str | None = None,
) -> Candidate:
    """Return the row of an answer, whose id is the hash of `identity`."""
    return Candidate(
        candidate_id=row_id("cand", identity),
        prompt_id=prompt_id,
        iteration=iteration,
        kind="external",
        parent_id=None,
        critique_id=None,
        policy=source,
        model=model,
        principle=principle,
        text=text,
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="stop",
        logprob=None,
        seed=0,
        sampling="",
    )
