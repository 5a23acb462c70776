# pyright: basic
"""The Arrow schema of each row type, and conversions between rows and tables.

A table's columns are the fields of its row type, in the same order; their Arrow types follow from
the type hints. `SCHEMA_VERSION` counts incompatible changes of any of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import accumulate, chain
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import pyarrow as pa

from . import records
from .records import Rating, Row

SCHEMA_VERSION = 7

R = TypeVar("R", bound=Row)


class ArrowTable(Protocol):
    """The parts of a `pyarrow.Table` that typed modules need."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...


Batch = Sequence[Row] | ArrowTable
"""Rows of one type: as objects, or as a table with their columns."""
RowsByType = Mapping[type[Row], Batch]
"""Rows of several types, as a unit makes them."""

TABLES: Mapping[type[Row], str] = {
    records.Prompt: "prompts",
    records.Candidate: "candidates",
    records.Critique: "critiques",
    records.Reward: "rewards",
    records.Preference: "preferences",
    records.Pair: "pairs",
    records.Demonstration: "demonstrations",
    records.UnpairedAnswer: "unpaired_answers",
    records.PairingOutcome: "pairing_outcomes",
    records.Checkpoint: "checkpoints",
    records.RewardModel: "reward_models",
    records.Rollout: "rollouts",
    records.Statistic: "statistics",
    records.Evaluation: "evaluations",
    records.Score: "scores",
    records.Grade: "grades",
    records.Breakdown: "breakdowns",
    records.Claim: "claims",
    records.PromptReview: "prompt_reviews",
    records.PolicyVerdict: "verdicts",
    records.PolicyStanding: "standings",
    records.Alarm: "alarms",
    records.FilterCount: "filter_counts",
}
ROW_TYPES: Mapping[str, type[Row]] = {name: row_type for row_type, name in TABLES.items()}

_SCALARS: Mapping[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


def _arrow_type(hint: Any) -> pa.DataType:
    """Return the Arrow type of a type hint: tuples are lists, dataclasses are structs."""
    if hint == Rating:
        return pa.int8()
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (one for one in get_args(hint) if one is not NoneType)
        return _arrow_type(inner)
    if is_dataclass(hint):
        return pa.struct(_fields_of(cast("type", hint)))
    return _SCALARS[hint]


def _fields_of(row_type: type) -> list[pa.Field]:
    hints = get_type_hints(row_type)
    return [pa.field(field.name, _arrow_type(hints[field.name])) for field in fields(row_type)]


def _nested_in(row_type: type) -> Iterator[tuple[str, type]]:
    """Yield the fields that hold tuples of dataclasses, with their types."""
    for name, hint in get_type_hints(row_type).items():
        if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
            yield name, get_args(hint)[0]


SCHEMAS: Mapping[str, pa.Schema] = {
    name: pa.schema(_fields_of(row_type), metadata={"lpfloop.schema": str(SCHEMA_VERSION)})
    for row_type, name in TABLES.items()
}
_NESTED: Mapping[str, type] = dict(chain.from_iterable(map(_nested_in, TABLES)))


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


def from_table(row_type: type[R], table: pa.Table) -> list[R]:
    """Return the rows of a table written by `to_table`."""
    make = cast("Callable[..., R]", row_type)
    return [
        make(**{name: _revive(name, value) for name, value in row.items()})
        for row in table.to_pylist()
    ]


def _conforming(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to its schema, in one chunk so that equal rows give equal bytes.

    Raises:
        ValueError: if its columns differ.
    """
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


def _revive(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    nested = _NESTED.get(name)
    if nested is None:
        return tuple(cast("list[Any]", value))
    return tuple(nested(**item) for item in cast("list[dict[str, Any]]", value))
