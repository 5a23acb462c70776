"""Reading prompts, and prompts with one or several answers and their judgments."""

from collections.abc import Iterator
from typing import cast

from ....stores.records import Message, Prompt
from ....stores.schemas import Row as StoredRow
from ...data.conversations import speaker_of, split_answer
from ...data.file_row import list_of
from ...data.files import Row, RowError
from ...data.row_fields import (
    ANSWER_FIELDS,
    MODEL_FIELDS,
    add_family,
    answer_of,
    critic_of,
    fields_of,
    model_of,
    object_of,
    remark_of,
    score_of,
    text_or_empty,
    truth_of,
)
from ...data.text_rows import unpack_cells
from .imported_rows import ImportedVerdict, Maker

ENTRY_FIELDS = ("candidates", "completions", "responses")
LISTED = {"model": "models", "label": "labels", "score": "scores", "reward": "rewards"}
"""The lists that can accompany a list of texts, by the field that each has for one text."""
LABELS = ("label", "correct", "is_correct")
"""Optional boolean fields: whether an answer is right."""

Rows = Iterator[StoredRow]


def prompts(row: Row, make: Maker) -> Rows:
    """Read a prompt without answers."""
    yield make.prompt(add_family(row))


def candidates(row: Row, make: Maker) -> Rows:
    """Read a prompt with one or more answers, which may have ratings, labels and a score."""
    fields = add_family(row)
    texts = [name for name in (*ANSWER_FIELDS, *ENTRY_FIELDS) if _texts(row.glance(name))]
    if texts:
        prompt, answer = make.prompt(fields), None
    else:
        prompt, answer = prompt_and_answer(fields, make)
    yield prompt
    if answer is not None:
        yield from _answer_rows(prompt, answer, row, make)
    for name in texts:
        yield from _samples(prompt, name, row, make)
    for name in [name for name in ENTRY_FIELDS if name not in texts]:
        for place, entry in enumerate(list_of(row, name), start=1):
            item = unpack_cells(object_of(entry, f"{name}[{place}]"))
            text = answer_of(item)
            if text is None:
                raise RowError(f"{name}[{place}] lacks {' or '.join(ANSWER_FIELDS)}")
            yield from _answer_rows(prompt, text, item, make)


def _texts(value: object) -> bool:
    """Whether a value is a list of texts."""
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return bool(entries) and all(isinstance(entry, str) for entry in entries)


def _samples(prompt: Prompt, name: str, row: Row, make: Maker) -> Rows:
    """Read a list of answers that are texts, with its lists of models, labels and scores."""
    texts = list_of(row, name)
    listed = {one: list_of(row, several) for one, several in LISTED.items() if several in row}
    for one, given in listed.items():
        if len(given) != len(texts):
            raise RowError(f"{LISTED[one]!r} has {len(given)} entries for {len(texts)} of {name!r}")
    shared = {one: row.get(one) for one in MODEL_FIELDS if row.get(one) is not None}
    for n, text in enumerate(texts, start=1):
        item = Row({**shared, **{one: given[n - 1] for one, given in listed.items()}})
        yield from _answer_rows(prompt, text_or_empty(text, f"{name}[{n}]"), item, make, sample=n)


def prompt_and_answer(row: Row, make: Maker) -> tuple[Prompt, str | None]:
    """Return the prompt of a row, and its answer: a field, or a conversation's last turn."""
    # An answer of a model can be empty: in CSV, that is an empty cell.
    entries = any(row.glance(name) for name in ENTRY_FIELDS)
    blank = None if entries or not any(name in row for name in ANSWER_FIELDS) else ""
    for field in ("messages", "conversations"):
        turns = row.get(field)
        if isinstance(turns, list) and _is_answer(cast("list[object]", turns)[-1:]):
            before, text = split_answer(cast("list[object]", turns), field)
            return make.prompt(row.having({field: _turns(before)})), text
    answer = answer_of(row)
    return make.prompt(row), blank if answer is None else answer


def _turns(messages: tuple[Message, ...]) -> list[object]:
    return [{"role": m.role, "content": m.content} for m in messages]


def ends_with_an_answer(row: Row) -> bool:
    """Whether a row is a conversation whose last turn is an answer."""
    turns = row.get("messages") or row.get("conversations")
    return isinstance(turns, list) and _is_answer(cast("list[object]", turns)[-1:])


def _is_answer(last: list[object]) -> bool:
    """Whether a turn, if there is one, is the assistant's."""
    return any(isinstance(turn, Row) and speaker_of(turn) == "assistant" for turn in last)


def _answer_rows(
    prompt: Prompt, text: str, row: Row, make: Maker, *, sample: int | None = None
) -> Rows:
    """Yield one answer with the row's ratings, labels and scores."""
    principle = remark_of(row, "principle")
    candidate = make.candidate(prompt, text, model_of(row), principle, sample=sample)
    yield candidate
    for name in LABELS:
        right = truth_of(row, name)
        if right is not None:
            yield make.label(candidate, name, right=right)
    verdicts = verdicts_of(row)
    comment = remark_of(row, "critique") or ""
    critic = critic_of(row)
    if verdicts or comment:
        yield make.critique(candidate, critic or make.source, verdicts, comment)
    for name in ("score", "reward"):
        yield from make.reward(candidate, name, score_of(row, name))


def verdicts_of(row: Row) -> list[ImportedVerdict]:
    """Return the ratings of a row: `ratings` by aspect, each with its entry in `comments`."""
    comments, ratings = fields_of(row, "comments"), fields_of(row, "ratings")
    for name in ratings:
        score_of(ratings, name)
    return [
        ImportedVerdict(
            name=name, given=ratings.glance(name), comment=remark_of(comments, name) or ""
        )
        for name in ratings
    ]
