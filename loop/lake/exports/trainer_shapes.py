# pyright: basic
"""The columns that each trainer's loader reads, and the conversion of rows to them.

Conversations are lists of role and content, optional keys are never null, and lineage stays in
separate columns, which the loaders ignore.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....stores.outputs import Record
from ....stores.schemas import SCHEMAS

Columns = Sequence[tuple[str, pa.DataType]]
Convert = Callable[[Record], Iterator[Record]]

TEXT, INT = pa.string(), pa.int64()
TURN = pa.struct([("role", TEXT), ("content", TEXT)])
TURNS = pa.list_(TURN)
FROM_TO = pa.struct([("from", TEXT), ("value", TEXT)])
SHAREGPT = {"user": "human", "assistant": "gpt", "system": "system"}
DATA = "train"
INDEX = re.compile("0|[1-9][0-9]{0,17}")
"""The id of a prompt that is its row's number in the source."""


def _lineage(*ids: str) -> Columns:
    return [*((name, TEXT) for name in (*ids, "rule")), ("iteration", INT)]


LINEAGE: Mapping[str, Columns] = {
    "pairs": _lineage("pair_id", "prompt_id", "chosen_id", "rejected_id"),
    "demonstrations": _lineage("demonstration_id", "prompt_id", "candidate_id"),
    "unpaired_answers": _lineage("unpaired_id", "prompt_id", "candidate_id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A file for a trainer: its table, its columns, and the table's columns that are kept as is."""

    table: str
    ending: str
    columns: Columns
    convert: Convert
    tags: Sequence[str] = ()
    kept: Columns = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        return pa.schema([*self.columns, *self.kept])

    def rows(self, row: Record) -> Iterator[Record]:
        """Yield the converted rows of one row of the table."""
        for made in self.convert(row):
            yield {**made, **{name: row[name] for name, _ in self.kept}}


def _as_is(*names: str) -> Convert:
    """Return a conversion that keeps these columns."""
    return lambda row: iter([{name: row[name] for name in names}])


def _with_prompt(row: Record) -> Iterator[dict[str, Any]]:
    """Yield both sides of a pair as whole conversations."""
    yield {name: [*row["prompt"], *row[name]] for name in ("chosen", "rejected")}


def _sides_apart(row: Record) -> Iterator[dict[str, Any]]:
    """Yield a row for each side of a pair: the chosen is desirable, the rejected is not."""
    for name, label in (("chosen", True), ("rejected", False)):
        side = {"completion": row[name], "label": label, "candidate_id": row[f"{name}_id"]}
        yield {"prompt": row["prompt"], **side}


def _sharegpt_pair(row: Record) -> Iterator[dict[str, Any]]:
    """Yield LLaMA-Factory's sharegpt row for ranking: `chosen` and `rejected` are single turns."""
    sides = {name: _sharegpt(row[name])[-1] for name in ("chosen", "rejected")}
    yield {"conversations": _sharegpt(row["prompt"]), **sides}


def _sharegpt_answer(row: Record) -> Iterator[dict[str, Any]]:
    yield {"conversations": _sharegpt([*row["prompt"], *row["completion"]])}


def _last_messages(row: Record) -> Iterator[dict[str, Any]]:
    """Yield axolotl's `chat_template.default` row: `chosen` and `rejected` are single messages."""
    sides = {name: row[name][-1] for name in ("chosen", "rejected")}
    yield {"messages": row["prompt"], **sides}


def _conversation(row: Record) -> Iterator[dict[str, Any]]:
    """Yield the whole conversation, for axolotl's `chat_template` and verl's multi-turn SFT."""
    yield {"messages": [*row["prompt"], *row["completion"]]}


def _ultrafeedback(row: Record) -> Iterator[Record]:
    """Yield UltraFeedback's binarised row: texts, the prompt's source, and both scores."""
    turns, name = row["prompt"], row["prompt_id"]
    alone = [turn["role"] for turn in turns] == ["user"]
    scores = {f"score_{side}": row[f"{side}_reward"] for side in ("chosen", "rejected")}
    yield {
        "prompt": turns[0]["content"] if alone else turns,
        "chosen": row["chosen"][-1]["content"],
        "rejected": row["rejected"][-1]["content"],
        **({"source_index": int(name)} if INDEX.fullmatch(name) else {"prompt_id": name}),
        "metadata": scores,
    }


def _verl_prompts(row: Record) -> Iterator[Record]:
    """Yield verl's RL row of a training prompt, with the fields that its reward function reads."""
    if row["split"] != DATA:
        return
    yield {
        "data_source": row["source"],
        "prompt": row["messages"],
        "ability": row["task"],
        "reward_model": {"style": "rule", "ground_truth": row["reference"] or ""},
        "extra_info": {"split": row["split"], "index": row["prompt_id"]},
    }


def _sharegpt(turns: Sequence[Record]) -> list[dict[str, str]]:
    return [{"from": SHAREGPT[turn["role"]], "value": turn["content"]} for turn in turns]


def _shape(
    table: str,
    ending: str,
    *,
    columns: Columns,
    convert: Convert,
    tags: Sequence[str],
    kept: Columns | None = None,
) -> Shape:
    """Return a shape that keeps the lineage of its table, or the columns `kept`."""
    kept = LINEAGE[table] if kept is None else kept
    return Shape(table=table, ending=ending, columns=columns, convert=convert, tags=tags, kept=kept)


_GROUND = pa.struct([("style", TEXT), ("ground_truth", TEXT)])
_EXTRA = pa.struct([("split", TEXT), ("index", TEXT)])
_SCORES = pa.struct([("score_chosen", pa.float64()), ("score_rejected", pa.float64())])
_SIDES: Columns = [("chosen", TURNS), ("rejected", TURNS)]
_ANSWER: Columns = [("prompt", TURNS), ("completion", TURNS)]
_LABELLED: Columns = [*_ANSWER, ("label", pa.bool_())]
_CONVERSATION: Columns = [("conversations", pa.list_(FROM_TO))]
_answer = _as_is("prompt", "completion")
PREFERENCE = ("preference", "dpo")

SHAPES: Mapping[str, Sequence[Shape]] = {
    "trl-dpo": [
        _shape(
            "pairs",
            ".parquet",
            columns=[("prompt", TURNS), *_SIDES],
            convert=_as_is("prompt", "chosen", "rejected"),
            tags=("trl", *PREFERENCE),
        )
    ],
    "trl-reward": [
        _shape(
            "pairs",
            ".parquet",
            columns=_SIDES,
            convert=_with_prompt,
            tags=("trl", "preference", "reward-modeling"),
        )
    ],
    "trl-kto": [
        _shape(
            "pairs",
            ".parquet",
            columns=[*_LABELLED, ("candidate_id", TEXT)],
            convert=_sides_apart,
            tags=("trl", "kto"),
            kept=_lineage("prompt_id"),
        ),
        _shape(
            "unpaired_answers",
            ".parquet",
            columns=_LABELLED,
            convert=_as_is("prompt", "completion", "label"),
            tags=("trl", "kto"),
        ),
    ],
    "trl-sft": [
        _shape("demonstrations", ".parquet", columns=_ANSWER, convert=_answer, tags=("trl", "sft")),
    ],
    "llamafactory": [
        _shape(
            "pairs",
            ".jsonl",
            columns=[*_CONVERSATION, ("chosen", FROM_TO), ("rejected", FROM_TO)],
            convert=_sharegpt_pair,
            tags=("llama-factory", *PREFERENCE),
        ),
        _shape(
            "demonstrations",
            ".jsonl",
            columns=_CONVERSATION,
            convert=_sharegpt_answer,
            tags=("llama-factory", "sft"),
        ),
    ],
    "axolotl": [
        _shape(
            "pairs",
            ".jsonl",
            columns=[("messages", TURNS), ("chosen", TURN), ("rejected", TURN)],
            convert=_last_messages,
            tags=("axolotl", *PREFERENCE),
        ),
        _shape(
            "demonstrations",
            ".jsonl",
            columns=[("messages", TURNS)],
            convert=_conversation,
            tags=("axolotl", "sft"),
        ),
    ],
    "openrlhf": [
        _shape(
            "pairs",
            ".jsonl",
            columns=_SIDES,
            convert=_with_prompt,
            tags=("openrlhf", *PREFERENCE),
        ),
        _shape(
            "demonstrations",
            ".jsonl",
            columns=_ANSWER,
            convert=_answer,
            tags=("openrlhf", "sft"),
        ),
    ],
    "ultrafeedback-binarized": [
        _shape(
            "pairs",
            ".jsonl",
            columns=[
                ("prompt", TEXT),
                ("chosen", TEXT),
                ("rejected", TEXT),
                ("source_index", INT),
                ("metadata", _SCORES),
            ],
            convert=_ultrafeedback,
            tags=("ultrafeedback", *PREFERENCE),
            kept=(),
        )
    ],
    "verl": [
        _shape(
            "prompts",
            ".parquet",
            columns=[
                ("data_source", TEXT),
                ("prompt", TURNS),
                ("ability", TEXT),
                ("reward_model", _GROUND),
                ("extra_info", _EXTRA),
            ],
            convert=_verl_prompts,
            tags=("verl",),
            kept=(),
        ),
        _shape(
            "demonstrations",
            ".parquet",
            columns=[("messages", TURNS)],
            convert=_conversation,
            tags=("verl", "sft"),
        ),
    ],
}
PLAIN = {"jsonl": ".jsonl", "parquet": ".parquet", "csv": ".csv"}


def plain_shape(table: str, form: str) -> Shape:
    """Return the shape that keeps the columns of a table."""
    kept = [(field.name, field.type) for field in SCHEMAS[table]]
    return Shape(table=table, ending=PLAIN[form], columns=(), convert=_as_is(), kept=kept)
