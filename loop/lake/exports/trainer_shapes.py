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
_FROM_TO_SIDES: Columns = {
    "conversations": (pa.list_(FROM_TO), _sharegpt("prompt")),
    "chosen": (FROM_TO, _last(_sharegpt("chosen"))),
    "rejected": (FROM_TO, _last(_sharegpt("rejected"))),
}
_FROM_TO_ANSWER: Columns = {"conversations": (pa.list_(FROM_TO), _sharegpt("prompt", "completion"))}
_LAST_TURNS: Columns = {
    "messages": (TURNS, "prompt"),
    "chosen": (TURN, _last(_turns("chosen"))),
    "rejected": (TURN, _last(_turns("rejected"))),
}
_BINARIZED: Columns = {
    "prompt": (TEXT, _prompt_text),
    "chosen": (TEXT, lambda row: row["chosen"][-1]["content"]),
    "rejected": (TEXT, lambda row: row["rejected"][-1]["content"]),
    "source_index": (INT, _source_index),
    "prompt_id": (
        TEXT,
        lambda row: None if INDEX.fullmatch(row["prompt_id"]) else row["prompt_id"],
    ),
    "metadata": (
        pa.struct([("score_chosen", pa.float64()), ("score_rejected", pa.float64())]),
        lambda row: {
            "score_chosen": row["chosen_reward"],
            "score_rejected": row["rejected_reward"],
        },
    ),
}
_REWARD_FUNCTION: Columns = {
    # The fields that verl's reward function reads.
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
}


def _pairs(ending: str, columns: Columns, *tags: str) -> Shape:
    lineage = _lineage("pair_id", "prompt_id", "chosen_id", "rejected_id")
    return Shape("pairs", ending, {**columns, **lineage}, tags)


def _demonstrations(ending: str, columns: Columns, trainer: str) -> Shape:
    lineage = _lineage("demonstration_id", "prompt_id", "candidate_id")
    return Shape("demonstrations", ending, {**columns, **lineage}, (trainer, "sft"))


_PREFERENCE = ("preference", "dpo")
_TO_LABEL: Columns = {**_LABELLED, **_lineage("candidate_id", "prompt_id")}
_UNPAIRED: Columns = {**_LABELLED, **_lineage("unpaired_id", "prompt_id", "candidate_id")}

SHAPES: Mapping[str, Sequence[Shape]] = {
    "trl-dpo": [_pairs(PARQUET, {"prompt": (TURNS, "prompt"), **_SIDES}, "trl", *_PREFERENCE)],
    "trl-reward": [_pairs(PARQUET, _WHOLE, "trl", "preference", "reward-modeling")],
    "trl-kto": [
        Shape("pairs", PARQUET, _TO_LABEL, ("trl", "kto"), _sides_apart),
        Shape("unpaired_answers", PARQUET, _UNPAIRED, ("trl", "kto")),
    ],
    "trl-sft": [_demonstrations(PARQUET, _ANSWER, "trl")],
    "llamafactory": [
        _pairs(JSONL, _FROM_TO_SIDES, "llama-factory", *_PREFERENCE),
        _demonstrations(JSONL, _FROM_TO_ANSWER, "llama-factory"),
    ],
    "axolotl": [
        _pairs(JSONL, _LAST_TURNS, "axolotl", *_PREFERENCE),
        _demonstrations(JSONL, _CONVERSATION, "axolotl"),
    ],
    "openrlhf": [
        _pairs(JSONL, _WHOLE, "openrlhf", *_PREFERENCE),
        _demonstrations(JSONL, _ANSWER, "openrlhf"),
    ],
    "ultrafeedback-binarized": [Shape("pairs", JSONL, _BINARIZED, ("ultrafeedback", *_PREFERENCE))],
    "verl": [
        Shape("prompts", PARQUET, _REWARD_FUNCTION, ("verl",), _trained_on),
        _demonstrations(PARQUET, _CONVERSATION, "verl"),
    ],
}
PLAIN = {"jsonl": JSONL, "parquet": PARQUET, "csv": ".csv"}


def plain_shape(table: str, form: str) -> Shape:
    """Return the shape that keeps the columns of a table."""
    columns = {column.name: (column.type, column.name) for column in SCHEMAS[table]}
    return Shape(table, PLAIN[form], columns, keeps_null=True)
