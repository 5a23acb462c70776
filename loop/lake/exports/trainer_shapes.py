# pyright: basic
"""The columns that each trainer's loader reads, and how a row of a table gives them.

Conversations are lists of role and content, optional keys are never null, and lineage stays in
separate columns, which the loaders ignore.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ....stores.outputs import Record
from ....stores.schemas import SCHEMAS

Expression = str | Callable[[Record], object]
"""A column of the table, or a function of the row."""
Columns = Mapping[str, tuple[pa.DataType, Expression]]

TEXT, INT = pa.string(), pa.int64()
TURN = pa.struct([("role", TEXT), ("content", TEXT)])
TURNS = pa.list_(TURN)
FROM_TO = pa.struct([("from", TEXT), ("value", TEXT)])
SHAREGPT = {"user": "human", "assistant": "gpt", "system": "system"}
DATA = "train"
PARQUET, JSONL = ".parquet", ".jsonl"
INDEX = re.compile("0|[1-9][0-9]{0,17}")
"""The id of a prompt that is its row's number in the source."""


def _each(row: Record) -> Iterable[Record]:
    return (row,)


@dataclass(frozen=True, slots=True)
class Shape:
    """A file for a trainer: its table, its columns with their expressions, and its tags.

    `split` gives the rows of the file that one row of the table becomes.
    """

    table: str
    ending: str
    columns: Columns
    tags: Sequence[str] = ()
    split: Callable[[Record], Iterable[Record]] = field(default=_each)
    keeps_null: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        return pa.schema([(name, dtype) for name, (dtype, _) in self.columns.items()])

    def rows(self, row: Record) -> Iterator[Record]:
        """Yield the converted rows of one row of the table."""
        for one in self.split(row):
            made = {
                name: one[how] if isinstance(how, str) else how(one)
                for name, (_, how) in self.columns.items()
            }
            yield {n: value for n, value in made.items() if self.keeps_null or value is not None}


def _lineage(*names: str) -> Columns:
    return {**{name: (TEXT, name) for name in (*names, "rule")}, "iteration": (INT, "iteration")}


def _turns(*names: str) -> Callable[[Record], list[Any]]:
    """Return the function that joins conversations."""
    return lambda row: [turn for name in names for turn in row[name]]


def _sharegpt(*names: str) -> Callable[[Record], list[Any]]:
    turns = _turns(*names)
    return lambda row: [
        {"from": SHAREGPT[turn["role"]], "value": turn["content"]} for turn in turns(row)
    ]


def _last(of: Callable[[Record], list[Any]]) -> Callable[[Record], object]:
    return lambda row: of(row)[-1]


def _sides_apart(row: Record) -> Iterable[Record]:
    """Return a row for each side of a pair: the chosen is desirable, the rejected is not."""
    return (
        {**row, "completion": row[side], "label": label, "candidate_id": row[f"{side}_id"]}
        for side, label in (("chosen", True), ("rejected", False))
    )


def _trained_on(row: Record) -> Iterable[Record]:
    return (row,) if row["split"] == DATA else ()


def _prompt_text(row: Record) -> object:
    """Return a prompt as a text if a user said it alone."""
    turns = row["prompt"]
    return turns[0]["content"] if [turn["role"] for turn in turns] == ["user"] else turns


def _source_index(row: Record) -> int | None:
    return int(row["prompt_id"]) if INDEX.fullmatch(row["prompt_id"]) else None


_SIDES: Columns = {name: (TURNS, name) for name in ("chosen", "rejected")}
_WHOLE: Columns = {name: (TURNS, _turns("prompt", name)) for name in ("chosen", "rejected")}
_ANSWER: Columns = {name: (TURNS, name) for name in ("prompt", "completion")}
_LABELLED: Columns = {**_ANSWER, "label": (pa.bool_(), "label")}
_CONVERSATION: Columns = {"messages": (TURNS, _turns("prompt", "completion"))}
_OF_PAIR = _lineage("pair_id", "prompt_id", "chosen_id", "rejected_id")
_OF_DEMONSTRATION = _lineage("demonstration_id", "prompt_id", "candidate_id")
_PREFERENCE = ("preference", "dpo")

SHAPES: Mapping[str, Sequence[Shape]] = {
    "trl-dpo": [
        Shape(
            "pairs",
            PARQUET,
            {"prompt": (TURNS, "prompt"), **_SIDES, **_OF_PAIR},
            ("trl", *_PREFERENCE),
        )
    ],
    "trl-reward": [
        Shape("pairs", PARQUET, {**_WHOLE, **_OF_PAIR}, ("trl", "preference", "reward-modeling"))
    ],
    "trl-kto": [
        Shape(
            "pairs",
            PARQUET,
            {**_LABELLED, **_lineage("candidate_id", "prompt_id")},
            ("trl", "kto"),
            _sides_apart,
        ),
        Shape(
            "unpaired_answers",
            PARQUET,
            {**_LABELLED, **_lineage("unpaired_id", "prompt_id", "candidate_id")},
            ("trl", "kto"),
        ),
    ],
    "trl-sft": [Shape("demonstrations", PARQUET, {**_ANSWER, **_OF_DEMONSTRATION}, ("trl", "sft"))],
    "llamafactory": [
        Shape(
            "pairs",
            JSONL,
            {
                "conversations": (pa.list_(FROM_TO), _sharegpt("prompt")),
                "chosen": (FROM_TO, _last(_sharegpt("chosen"))),
                "rejected": (FROM_TO, _last(_sharegpt("rejected"))),
                **_OF_PAIR,
            },
            ("llama-factory", *_PREFERENCE),
        ),
        Shape(
            "demonstrations",
            JSONL,
            {
                "conversations": (pa.list_(FROM_TO), _sharegpt("prompt", "completion")),
                **_OF_DEMONSTRATION,
            },
            ("llama-factory", "sft"),
        ),
    ],
    "axolotl": [
        Shape(
            "pairs",
            JSONL,
            {
                "messages": (TURNS, "prompt"),
                "chosen": (TURN, _last(_turns("chosen"))),
                "rejected": (TURN, _last(_turns("rejected"))),
                **_OF_PAIR,
            },
            ("axolotl", *_PREFERENCE),
        ),
        Shape("demonstrations", JSONL, {**_CONVERSATION, **_OF_DEMONSTRATION}, ("axolotl", "sft")),
    ],
    "openrlhf": [
        Shape("pairs", JSONL, {**_WHOLE, **_OF_PAIR}, ("openrlhf", *_PREFERENCE)),
        Shape("demonstrations", JSONL, {**_ANSWER, **_OF_DEMONSTRATION}, ("openrlhf", "sft")),
    ],
    "ultrafeedback-binarized": [
        Shape(
            "pairs",
            JSONL,
            {
                "prompt": (TEXT, _prompt_text),
                "chosen": (TEXT, lambda row: row["chosen"][-1]["content"]),
                "rejected": (TEXT, lambda row: row["rejected"][-1]["content"]),
                "source_index": (INT, _source_index),
                "prompt_id": (
                    TEXT,
                    lambda row: row["prompt_id"] if _source_index(row) is None else None,
                ),
                "metadata": (
                    pa.struct([("score_chosen", pa.float64()), ("score_rejected", pa.float64())]),
                    lambda row: {
                        f"score_{side}": row[f"{side}_reward"] for side in ("chosen", "rejected")
                    },
                ),
            },
            ("ultrafeedback", *_PREFERENCE),
        )
    ],
    "verl": [
        # The fields that its reward function reads, of training prompts.
        Shape(
            "prompts",
            PARQUET,
            {
                "data_source": (TEXT, "source"),
                "prompt": (TURNS, "messages"),
                "ability": (TEXT, "task"),
                "reward_model": (
                    pa.struct([("style", TEXT), ("ground_truth", TEXT)]),
                    lambda row: {"style": "rule", "ground_truth": row["reference"] or ""},
                ),
                "extra_info": (
                    pa.struct([("split", TEXT), ("index", TEXT)]),
                    lambda row: {"split": row["split"], "index": row["prompt_id"]},
                ),
            },
            ("verl",),
            _trained_on,
        ),
        Shape("demonstrations", PARQUET, {**_CONVERSATION, **_OF_DEMONSTRATION}, ("verl", "sft")),
    ],
}
PLAIN = {"jsonl": JSONL, "parquet": PARQUET, "csv": ".csv"}


def plain_shape(table: str, form: str) -> Shape:
    """Return the shape that keeps the columns of a table."""
    columns = {column.name: (column.type, column.name) for column in SCHEMAS[table]}
    return Shape(table, PLAIN[form], columns, keeps_null=True)
