# pyright: basic
"""The columns that each trainer's loader reads, and the conversion of rows to them.

Conversations are lists of role and content, no optional key is ever null, and lineage stays in
columns of its own, which the loaders ignore.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....stores.outputs import Record
from ....stores.schemas import SCHEMAS

TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
TURN = pa.struct([("role", pa.string()), ("content", pa.string())])
TEXT, INT, BOOL = pa.string(), pa.int64(), pa.bool_()
SHAREGPT = {"user": "human", "assistant": "gpt", "system": "system"}
DATA = "train"
INDEX = re.compile("0|[1-9][0-9]{0,17}")
"""The id of a prompt that is its row's number in the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A file for a trainer: its table, its columns, and further files beside it."""

    table: str
    ending: str
    columns: Sequence[tuple[str, pa.DataType]]
    convert: Callable[[Record], Iterator[Record]]
    beside: Callable[[str], Mapping[str, Any]] = lambda _: {}
    tags: Sequence[str] = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file."""
        return pa.schema(list(self.columns))


PAIR_LINEAGE = [(name, TEXT) for name in ("pair_id", "prompt_id", "chosen_id", "rejected_id")]
PAIR_LINEAGE += [("rule", TEXT), ("iteration", INT)]
DEMO_LINEAGE = [(name, TEXT) for name in ("demonstration_id", "prompt_id", "candidate_id")]
DEMO_LINEAGE += [("rule", TEXT), ("iteration", INT)]
UNPAIRED_LINEAGE = [(name, TEXT) for name in ("unpaired_id", "prompt_id", "candidate_id")]
UNPAIRED_LINEAGE += [("rule", TEXT), ("iteration", INT)]


def _lineage(row: Record, names: Sequence[tuple[str, pa.DataType]]) -> dict[str, Any]:
    return {name: row[name] for name, _ in names}


def trl_dpo(row: Record) -> Iterator[Record]:
    """Yield TRL's preference row with an explicit prompt."""
    given = {name: row[name] for name in ("prompt", "chosen", "rejected")}
    yield {**given, **_lineage(row, PAIR_LINEAGE)}


def trl_reward(row: Record) -> Iterator[Record]:
    """Yield TRL's preference row with the prompt in both conversations."""
    sides = {name: [*row["prompt"], *row[name]] for name in ("chosen", "rejected")}
    yield {**sides, **_lineage(row, PAIR_LINEAGE)}


def trl_kto(row: Record) -> Iterator[Record]:
    """Yield TRL's unpaired row: a success is desirable, a failure is not."""
    given = {name: row[name] for name in ("prompt", "completion", "label")}
    yield {**given, **_lineage(row, UNPAIRED_LINEAGE)}


def trl_kto_of_pair(row: Record) -> Iterator[Record]:
    """Yield TRL's unpaired rows of a pair: the chosen is desirable, the rejected is not."""
    for name, label in (("chosen", True), ("rejected", False)):
        yield {
            "prompt": row["prompt"],
            "completion": row[name],
            "label": label,
            "prompt_id": row["prompt_id"],
            "candidate_id": row[f"{name}_id"],
            "rule": row["rule"],
            "iteration": row["iteration"],
        }


def trl_sft(row: Record) -> Iterator[Record]:
    """Yield TRL's prompt and completion."""
    given = {name: row[name] for name in ("prompt", "completion")}
    yield {**given, **_lineage(row, DEMO_LINEAGE)}


def llamafactory_pairs(row: Record) -> Iterator[Record]:
    """Yield LLaMA-Factory's sharegpt row for ranking: `chosen` and `rejected` are single turns."""
    yield {
        "conversations": _sharegpt(row["prompt"]),
        "chosen": _sharegpt(row["chosen"])[-1],
        "rejected": _sharegpt(row["rejected"])[-1],
        **_lineage(row, PAIR_LINEAGE),
    }


def llamafactory_sft(row: Record) -> Iterator[Record]:
    """Yield LLaMA-Factory's sharegpt row."""
    turns = _sharegpt([*row["prompt"], *row["completion"]])
    yield {"conversations": turns, **_lineage(row, DEMO_LINEAGE)}


def axolotl_pairs(row: Record) -> Iterator[Record]:
    """Yield axolotl's `chat_template.default` row: `chosen` and `rejected` are single messages."""
    yield {
        "messages": row["prompt"],
        "chosen": row["chosen"][-1],
        "rejected": row["rejected"][-1],
        **_lineage(row, PAIR_LINEAGE),
    }


def whole_conversation(row: Record) -> Iterator[Record]:
    """Yield the whole conversation, for axolotl's `chat_template` and verl's multi-turn SFT."""
    yield {"messages": [*row["prompt"], *row["completion"]], **_lineage(row, DEMO_LINEAGE)}


def ultrafeedback_pairs(row: Record) -> Iterator[Record]:
    """Yield UltraFeedback's binarised row: texts, where the prompt comes from, and both scores."""
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


def verl_prompts(row: Record) -> Iterator[Record]:
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


def _llamafactory(name: str, columns: Mapping[str, str], **more: Any) -> Mapping[str, Any]:
    tags = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
    entry = {"file_name": f"{DATA}.jsonl", "formatting": "sharegpt", **more}
    entry |= {"columns": dict(columns), "tags": {**tags, "system_tag": "system"}}
    return {"dataset_info.json": {name: entry}}


def _llamafactory_ranking(name: str) -> Mapping[str, Any]:
    columns = {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}
    return _llamafactory(name, columns, ranking=True)


def _llamafactory_plain(name: str) -> Mapping[str, Any]:
    return _llamafactory(name, {"messages": "conversations"})


def _axolotl_dpo(name: str) -> Mapping[str, Any]:
    entry = {"path": name, "split": "train", "type": "chat_template.default"}
    fields = {"field_messages": "messages", "field_chosen": "chosen", "field_rejected": "rejected"}
    return {"axolotl.yaml": {"rl": "dpo", "datasets": [{**entry, **fields}]}}


def _axolotl_sft(name: str) -> Mapping[str, Any]:
    entry = {"path": name, "split": "train", "type": "chat_template", "field_messages": "messages"}
    return {"axolotl.yaml": {"datasets": [entry]}}


_GROUND = pa.struct([("style", TEXT), ("ground_truth", TEXT)])
_EXTRA = pa.struct([("split", TEXT), ("index", TEXT)])
_SCORES = pa.struct([("score_chosen", pa.float64()), ("score_rejected", pa.float64())])
_FROM_TO = pa.struct([("from", TEXT), ("value", TEXT)])
_SIDES = [("chosen", TURNS), ("rejected", TURNS)]

PREFERENCE = ("preference", "dpo")
SHAPES: Mapping[str, Sequence[Shape]] = {
    "trl-dpo": [
        Shape(
            table="pairs",
            ending=".parquet",
            columns=[("prompt", TURNS), *_SIDES, *PAIR_LINEAGE],
            convert=trl_dpo,
            tags=("trl", *PREFERENCE),
        )
    ],
    "trl-reward": [
        Shape(
            table="pairs",
            ending=".parquet",
            columns=[*_SIDES, *PAIR_LINEAGE],
            convert=trl_reward,
            tags=("trl", "preference", "reward-modeling"),
        )
    ],
    "trl-kto": [
        Shape(
            table="pairs",
            ending=".parquet",
            columns=[
                ("prompt", TURNS),
                ("completion", TURNS),
                ("label", BOOL),
                ("prompt_id", TEXT),
                ("candidate_id", TEXT),
                ("rule", TEXT),
                ("iteration", INT),
            ],
            convert=trl_kto_of_pair,
            tags=("trl", "kto"),
        ),
        Shape(
            table="unpaired_answers",
            ending=".parquet",
            columns=[
                ("prompt", TURNS),
                ("completion", TURNS),
                ("label", BOOL),
                *UNPAIRED_LINEAGE,
            ],
            convert=trl_kto,
            tags=("trl", "kto"),
        ),
    ],
    "trl-sft": [
        Shape(
            table="demonstrations",
            ending=".parquet",
            columns=[("prompt", TURNS), ("completion", TURNS), *DEMO_LINEAGE],
            convert=trl_sft,
            tags=("trl", "sft"),
        ),
    ],
    "llamafactory": [
        Shape(
            table="pairs",
            ending=".jsonl",
            columns=[
                ("conversations", pa.list_(_FROM_TO)),
                ("chosen", _FROM_TO),
                ("rejected", _FROM_TO),
                *PAIR_LINEAGE,
            ],
            convert=llamafactory_pairs,
            beside=_llamafactory_ranking,
            tags=("llama-factory", *PREFERENCE),
        ),
        Shape(
            table="demonstrations",
            ending=".jsonl",
            columns=[("conversations", pa.list_(_FROM_TO)), *DEMO_LINEAGE],
            convert=llamafactory_sft,
            beside=_llamafactory_plain,
            tags=("llama-factory", "sft"),
        ),
    ],
    "axolotl": [
        Shape(
            table="pairs",
            ending=".jsonl",
            columns=[("messages", TURNS), ("chosen", TURN), ("rejected", TURN), *PAIR_LINEAGE],
            convert=axolotl_pairs,
            beside=_axolotl_dpo,
            tags=("axolotl", *PREFERENCE),
        ),
        Shape(
            table="demonstrations",
            ending=".jsonl",
            columns=[("messages", TURNS), *DEMO_LINEAGE],
            convert=whole_conversation,
            beside=_axolotl_sft,
            tags=("axolotl", "sft"),
        ),
    ],
    "openrlhf": [
        Shape(
            table="pairs",
            ending=".jsonl",
            columns=[*_SIDES, *PAIR_LINEAGE],
            convert=trl_reward,
            tags=("openrlhf", *PREFERENCE),
        ),
        Shape(
            table="demonstrations",
            ending=".jsonl",
            columns=[("prompt", TURNS), ("completion", TURNS), *DEMO_LINEAGE],
            convert=trl_sft,
            tags=("openrlhf", "sft"),
        ),
    ],
    "ultrafeedback-binarized": [
        Shape(
            table="pairs",
            ending=".jsonl",
            columns=[
                ("prompt", TEXT),
                ("chosen", TEXT),
                ("rejected", TEXT),
                ("source_index", INT),
                ("metadata", _SCORES),
            ],
            convert=ultrafeedback_pairs,
            tags=("ultrafeedback", *PREFERENCE),
        )
    ],
    "verl": [
        Shape(
            table="prompts",
            ending=".parquet",
            columns=[
                ("data_source", TEXT),
                ("prompt", TURNS),
                ("ability", TEXT),
                ("reward_model", _GROUND),
                ("extra_info", _EXTRA),
            ],
            convert=verl_prompts,
            tags=("verl",),
        ),
        Shape(
            table="demonstrations",
            ending=".parquet",
            columns=[("messages", TURNS), *DEMO_LINEAGE],
            convert=whole_conversation,
            tags=("verl", "sft"),
        ),
    ],
}
PLAIN = {"jsonl": ".jsonl", "parquet": ".parquet", "csv": ".csv"}


def plain_shape(table: str, form: str) -> Shape:
    """Return the shape of a table with its own columns."""
    columns = [(field.name, field.type) for field in SCHEMAS[table]]
    return Shape(
        table=table, ending=PLAIN[form], columns=columns, convert=lambda row: iter([dict(row)])
    )
