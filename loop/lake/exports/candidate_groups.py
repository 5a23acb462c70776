# pyright: basic
"""The candidates of each prompt with their judgments, by batches of prompts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ....configs.secrecy import row_without_keys
from ....stores.lake import RunReader
from ...data.judged_candidates import critique_place

Row = Mapping[str, Any]
CANDIDATES_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with all its judgments, oldest first."""

    candidate: Row
    critiques: Sequence[Row]
    rewards: Sequence[Row]
    grades: Sequence[Row] = ()

    @property
    def critique(self) -> Row | None:
        """The critique that represents all: the critic's, or else a person's."""
        ordered = sorted(self.critiques, key=lambda c: critique_place(c["critic"], c["sample"]))
        return ordered[-1] if ordered else None


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its candidates."""

    prompt: Row
    candidates: Sequence[Judged]


def groups(run: RunReader, iteration: int | None) -> Iterator[Group]:
    """Yield every prompt that has candidates, in the run's order."""
    order = (
        run.scan("candidates", iteration=iteration)
        .group_by("prompt_id", maintain_order=True)
        .len()
        .collect()
        .with_columns(batch=pl.col("len").cum_sum() // CANDIDATES_AT_ONCE)
    )
    for batch in order.partition_by("batch", maintain_order=True):
        yield from _batch(run, iteration, batch.select("prompt_id"))


def _batch(run: RunReader, iteration: int | None, ids: pl.DataFrame) -> Iterator[Group]:
    prompts = {row["prompt_id"]: row for row in _rows(run, "prompts", None, ids)}
    candidates = _by(_rows(run, "candidates", iteration, ids), "prompt_id")
    critiques = _by(_rows(run, "critiques", iteration, ids), "candidate_id")
    rewards = _by(_rows(run, "rewards", iteration, ids), "candidate_id")
    grades = _by(_rows(run, "grades", iteration, ids), "candidate_id")
    for prompt_id in ids["prompt_id"]:
        judged = [
            Judged(
                c,
                *(
                    judgments.get(c["candidate_id"], ())
                    for judgments in (critiques, rewards, grades)
                ),
            )
            for c in candidates[prompt_id]
        ]
        yield Group(prompts[prompt_id], judged)


def _rows(
    run: RunReader, table: str, iteration: int | None, ids: pl.DataFrame
) -> Sequence[dict[str, Any]]:
    frame = run.scan(table, iteration=iteration)
    found = frame.join(ids.lazy(), on="prompt_id", how="semi", maintain_order="left").collect()
    return row_without_keys(found.to_dicts())


def _by(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found
