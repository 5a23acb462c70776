# pyright: basic
"""The Arrow schema of each row type, and conversions between rows and tables.

A table's columns are the fields of its row type, in the same order and with explicit types, so a
part file reads the same whichever code wrote it. `SCHEMA_VERSION` counts incompatible changes of
any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from .records import (
    Alarm,
    AspectRating,
    Breakdown,
    Candidate,
    Check,
    Checkpoint,
    Claim,
    Critique,
    Demonstration,
    Distillation,
    Evaluation,
    Grade,
    Message,
    Pair,
    PolicyStanding,
    PolicyVerdict,
    Preference,
    Prompt,
    PromptReview,
    Receipt,
    Reward,
    RewardModel,
    Rollout,
    Score,
    Statistic,
    UnpairedAnswer,
    Yield,
)

SCHEMA_VERSION = 6

Row = (
    Prompt
    | Candidate
    | Critique
    | Reward
    | Preference
    | Pair
    | Demonstration
    | Distillation
    | UnpairedAnswer
    | Yield
    | Checkpoint
    | RewardModel
    | Rollout
    | Statistic
    | Evaluation
    | Score
    | Grade
    | PromptReview
    | Receipt
    | PolicyVerdict
    | PolicyStanding
    | Alarm
    | Breakdown
    | Claim
)
R = TypeVar("R", bound=Row)


class ArrowTable(Protocol):
    """A `pyarrow.Table`, as far as typed modules need to know it."""

    def __len__(self) -> int:
        """Return how many rows it has."""
        ...


Batch = Sequence[Row] | ArrowTable
"""Rows of one type: as objects, or as a table with their columns."""
RowsByType = Mapping[type[Row], Batch]
"""Rows of several types, as a unit makes them."""

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_CHECKS = pa.list_(pa.struct([("kind", pa.string()), ("argument", pa.string())]))
_ASPECTS = pa.list_(
    pa.struct([("name", pa.string()), ("rating", pa.int8()), ("comment", pa.string())])
)
_RATINGS = pa.list_(pa.int8())
_TEXTS = pa.list_(pa.string())
_TEXT, _INT, _REAL, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_JUDGED = {"judged_at": _TEXT, "judged_seconds": _REAL}
_SCORES = {"first_score": _REAL, "second_score": _REAL}

TABLES: Mapping[type[Row], str] = {
    Prompt: "prompts",
    Candidate: "candidates",
    Critique: "critiques",
    Reward: "rewards",
    Preference: "preferences",
    Pair: "pairs",
    Demonstration: "demonstrations",
    Distillation: "distillations",
    UnpairedAnswer: "unpaired_answers",
    Yield: "yields",
    Checkpoint: "checkpoints",
    RewardModel: "reward_models",
    Rollout: "rollouts",
    Statistic: "statistics",
    Evaluation: "evaluations",
    Score: "scores",
    Grade: "grades",
    PromptReview: "prompt_reviews",
    Receipt: "receipts",
    PolicyVerdict: "verdicts",
    PolicyStanding: "standings",
    Alarm: "alarms",
    Breakdown: "breakdowns",
    Claim: "claims",
}
ROW_TYPES: Mapping[str, type[Row]] = {name: row_type for row_type, name in TABLES.items()}

_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "prompts": {
        "prompt_id": _TEXT,
        "task": _TEXT,
        "split": _TEXT,
        "messages": _MESSAGES,
        "reference": _TEXT,
        "checks": _CHECKS,
        "source": _TEXT,
        "family": _TEXT,
        "cluster": _TEXT,
        "exam": _TEXT,
        "part": _TEXT,
        "correct_answers": _TEXTS,
        "incorrect_answers": _TEXTS,
    },
    "candidates": {
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "kind": _TEXT,
        "parent_id": _TEXT,
        "critique_id": _TEXT,
        "policy": _TEXT,
        "model": _TEXT,
        "principle": _TEXT,
        "text": _TEXT,
        "reasoning": _TEXT,
        "prompt_tokens": _INT,
        "completion_tokens": _INT,
        "finish_reason": _TEXT,
        "logprob": _REAL,
        "seed": _INT,
        "sampling": _TEXT,
    },
    "critiques": {
        "critique_id": _TEXT,
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "critic": _TEXT,
        "aspects": _ASPECTS,
        "text": _TEXT,
        "reference_used": _BOOL,
        "status": _TEXT,
        "attempts": _INT,
        "sample": _INT,
        **_JUDGED,
        "same_as": _TEXT,
    },
    "rewards": {
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "reward_model": _TEXT,
        "score": _REAL,
        "status": _TEXT,
    },
    "preferences": {
        "preference_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "first_id": _TEXT,
        "second_id": _TEXT,
        "annotator": _TEXT,
        "preferred": _TEXT,
        "flipped": _BOOL,
        "order": _TEXT,
        "text": _TEXT,
        "status": _TEXT,
        **_JUDGED,
        **_SCORES,
    },
    "pairs": {
        "pair_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "chosen_id": _TEXT,
        "rejected_id": _TEXT,
        "rule": _TEXT,
        "rank": _INT,
        "chosen_ratings": _RATINGS,
        "rejected_ratings": _RATINGS,
        "chosen_reward": _REAL,
        "rejected_reward": _REAL,
        "prompt": _MESSAGES,
        "chosen": _MESSAGES,
        "rejected": _MESSAGES,
        "chosen_cut": _BOOL,
        "rejected_cut": _BOOL,
    },
    "demonstrations": {
        "demonstration_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "candidate_id": _TEXT,
        "rule": _TEXT,
        "rank": _INT,
        "ratings": _RATINGS,
        "reward": _REAL,
        "prompt": _MESSAGES,
        "completion": _MESSAGES,
    },
    "distillations": {
        "distillation_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "candidate_id": _TEXT,
        "rule": _TEXT,
        "ratings": _RATINGS,
        "prompt": _MESSAGES,
        "teacher_prompt": _MESSAGES,
        "completion": _MESSAGES,
    },
    "unpaired_answers": {
        "unpaired_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "candidate_id": _TEXT,
        "rule": _TEXT,
        "rank": _INT,
        "ratings": _RATINGS,
        "reward": _REAL,
        "prompt": _MESSAGES,
        "completion": _MESSAGES,
        "label": _BOOL,
    },
    "yields": {
        "prompt_id": _TEXT,
        "iteration": _INT,
        "rule": _TEXT,
        "outcome": _TEXT,
        "made": _INT,
    },
    "checkpoints": {
        "checkpoint_id": _TEXT,
        "parent_id": _TEXT,
        "reference_id": _TEXT,
        "iteration": _INT,
        "recipe": _TEXT,
        "path": _TEXT,
        "steps": _INT,
        "metrics": _TEXT,
        "at_step": _INT,
    },
    "reward_models": {
        "reward_model_id": _TEXT,
        "parent_id": _TEXT,
        "iteration": _INT,
        "path": _TEXT,
        "steps": _INT,
        "metrics": _TEXT,
    },
    "rollouts": {
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "step": _INT,
        "reward": _REAL,
        "kl": _REAL,
        "logprob": _REAL,
        "reference_logprob": _REAL,
        "tokens": _INT,
        "value": _REAL,
        "advantage_mean": _REAL,
        "advantage_std": _REAL,
        "quantile": _INT,
    },
    "statistics": {
        "iteration": _INT,
        "method": _TEXT,
        "step": _INT,
        "metric": _TEXT,
        "value": _REAL,
    },
    "evaluations": {
        "iteration": _INT,
        "checkpoint_id": _TEXT,
        "benchmark": _TEXT,
        "metric": _TEXT,
        "value": _REAL,
        "stderr": _REAL,
        "n": _INT,
    },
    "scores": {
        "iteration": _INT,
        "checkpoint_id": _TEXT,
        "benchmark": _TEXT,
        "metric": _TEXT,
        "prompt_id": _TEXT,
        "candidate_id": _TEXT,
        "value": _REAL,
    },
    "grades": {
        "grade_id": _TEXT,
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "annotator": _TEXT,
        "aspect": _TEXT,
        "rating": _REAL,
        "rationale": _TEXT,
        "types": _TEXTS,
        "type_rationale": _TEXT,
        "reference_used": _BOOL,
        "order": _INT,
        "status": _TEXT,
        "attempts": _INT,
        "text": _TEXT,
        "same_as": _TEXT,
    },
    "breakdowns": {
        "breakdown_id": _TEXT,
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "judge": _TEXT,
        "place": _INT,
        "passage": _TEXT,
        "statements": _TEXTS,
        "status": _TEXT,
        "attempts": _INT,
        "text": _TEXT,
    },
    "claims": {
        "claim_id": _TEXT,
        "candidate_id": _TEXT,
        "prompt_id": _TEXT,
        "iteration": _INT,
        "judge": _TEXT,
        "place": _INT,
        "statement": _TEXT,
        "verdict": _TEXT,
        "reason": _TEXT,
        "status": _TEXT,
        "attempts": _INT,
        "text": _TEXT,
    },
    "prompt_reviews": {
        "prompt_id": _TEXT,
        "iteration": _INT,
        "judge": _TEXT,
        "aspects": _ASPECTS,
        "intention": _TEXT,
        "status": _TEXT,
        "attempts": _INT,
        "text": _TEXT,
    },
    "verdicts": {
        "iteration": _INT,
        "checkpoint_id": _TEXT,
        "against": _TEXT,
        "other_id": _TEXT,
        "other_iteration": _INT,
        "split": _TEXT,
        "figure": _TEXT,
        "scope": _TEXT,
        "name": _TEXT,
        "n": _INT,
        "clusters": _INT,
        "before": _REAL,
        "after": _REAL,
        "difference": _REAL,
        "low": _REAL,
        "high": _REAL,
        "gained": _REAL,
        "lost": _REAL,
        "answer": _TEXT,
        "needed": _INT,
        "level": _REAL,
    },
    "standings": {
        "iteration": _INT,
        "checkpoint_id": _TEXT,
        "accepted": _BOOL,
        "best_id": _TEXT,
        "best_iteration": _INT,
        "next_id": _TEXT,
        "next_iteration": _INT,
        "gainless": _INT,
        "reason": _TEXT,
    },
    "alarms": {
        "iteration": _INT,
        "checkpoint_id": _TEXT,
        "kind": _TEXT,
        "scope": _TEXT,
        "name": _TEXT,
        "before": _REAL,
        "after": _REAL,
        "limit": _REAL,
        "stops": _BOOL,
        "told": _TEXT,
        "examples": _TEXTS,
    },
    "receipts": {
        "iteration": _INT,
        "filter": _TEXT,
        "items": _TEXT,
        "outcome": _TEXT,
        "count": _INT,
        "examples": _TEXTS,
    },
}
_SINCE: Mapping[str, int] = {
    "preferences": 2,
    "reward_models": 2,
    "rollouts": 2,
    "statistics": 2,
    "grades": 3,
    "prompt_reviews": 3,
    "receipts": 3,
    "verdicts": 5,
    "standings": 5,
    "alarms": 5,
    "breakdowns": 6,
    "claims": 6,
    "distillations": 6,
    "unpaired_answers": 6,
}
"""The schema version in which a table last changed, where that is not 1.

It is written into every part, so a table that a later version does not change keeps its bytes, and
with them the hashes by which a recomputed unit is recognised.
"""

LATER: Mapping[str, tuple[str, ...]] = {
    "candidates": ("reasoning",),
    "checkpoints": ("at_step",),
    "critiques": ("sample", *_JUDGED, "same_as"),
    "grades": ("same_as",),
    "pairs": ("chosen_cut", "rejected_cut"),
    "preferences": (*_JUDGED, *_SCORES),
    "verdicts": ("level",),
    "prompts": ("family", "cluster", "exam", "part", "correct_answers", "incorrect_answers"),
}
"""Columns that a table has gained, null in most rows.

A part in which such a column holds nothing is without it, so that it keeps its bytes, too; a
digest leaves it out of rows where it is null.
"""

SCHEMAS: Mapping[str, pa.Schema] = {
    name: pa.schema(list(columns.items()), metadata={"lpfloop.schema": str(_SINCE.get(name, 1))})
    for name, columns in _COLUMNS.items()
}

_NESTED: Mapping[str, type] = {
    "messages": Message,
    "prompt": Message,
    "chosen": Message,
    "rejected": Message,
    "completion": Message,
    "teacher_prompt": Message,
    "checks": Check,
    "aspects": AspectRating,
}


def plain(value: object) -> Any:
    """Return `value` with dataclasses as dicts and tuples as lists, as JSON and Arrow take them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(v) for v in cast("Sequence[object]", value)]
    return value


def to_table(row_type: type[Row], rows: Batch) -> pa.Table:
    """Return rows, or a table of them, with exactly the schema of their type."""
    schema = SCHEMAS[TABLES[row_type]]
    if not isinstance(rows, Sequence):
        return _conforming(cast("pa.Table", rows), schema)
    return pa.Table.from_arrays([_column(rows, field) for field in schema], schema=schema)


def with_later(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of `LATER` that its schema has and it lacks, all null."""
    for name in chain.from_iterable(LATER.values()):
        if name in schema.names and name not in table.column_names:
            field, place = schema.field(name), schema.get_field_index(name)
            table = table.add_column(place, field, pa.nulls(len(table), field.type))
    return table


def without_later(table: pa.Table) -> pa.Table:
    """Return a table without the columns of `LATER` in which it holds nothing."""
    gained = {*chain.from_iterable(LATER.values())} & {*table.column_names}
    return table.drop_columns([n for n in sorted(gained) if table[n].null_count == len(table)])


def from_table(row_type: type[R], table: pa.Table) -> list[R]:
    """Return the rows of a table written by `to_table`."""
    return [row_type(**_revived(row)) for row in table.to_pylist()]


def _conforming(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to its schema, in one chunk so that equal rows give equal bytes.

    Raises:
        ValueError: if its columns differ.
    """
    table = with_later(table, schema)
    if set(table.column_names) != set(schema.names):
        raise ValueError(f"a table with the columns {table.column_names} is not {schema.names}")
    return table.select(schema.names).cast(schema).combine_chunks()


def _column(rows: Sequence[Row], field: pa.Field) -> pa.Array:
    values = list(map(attrgetter(field.name), rows))
    if field.name not in _NESTED:
        return pa.array(values, field.type)
    offsets = pa.array(accumulate(map(len, values), initial=0), pa.int32())
    items = list(chain.from_iterable(values))
    inner = field.type.value_type
    columns = [pa.array(map(attrgetter(f.name), items), f.type) for f in inner]
    return pa.ListArray.from_arrays(
        offsets, pa.StructArray.from_arrays(columns, fields=list(inner))
    )


def _revived(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _revive(name, value) for name, value in row.items()}


def _revive(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    nested = _NESTED.get(name)
    if nested is None:
        return tuple(cast("list[Any]", value))
    return tuple(nested(**item) for item in cast("list[dict[str, Any]]", value))
