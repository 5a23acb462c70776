# pyright: basic
"""Copies and near copies in a run: among candidates, among prompts, and across splits.

A run records them at the end of each iteration: copies over all candidates, near copies over a
sample of whole chunks of prompts, so that it takes seconds at any size.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa

from ....stores.journal_reader import Part, Reader
from ....stores.keys import Json, digest
from ....stores.records import Candidate, Prompt, Split
from ...data.contamination import overlaps
from ...data.near_duplicates import Alike, alike, copy_key
from ...data.splits import DEV, HELD_OUT, TRAIN

if TYPE_CHECKING:
    from ...run.run import Run

EVENT = "duplicates"
SAMPLE = 20_000
"""At most this many candidates are compared for near copies while the run waits (2 s)."""

SYSTEM = "system"

logger = logging.getLogger("lpfloop.loop")


def note_duplicates(run: "Run", iteration: int) -> None:
    """Record copies among an iteration's candidates, once; in iteration 0 also among prompts."""
    journal = run.store.journal
    table = "candidates" if iteration else "prompts"
    parts = journal.parts(table=table, iteration=iteration)
    seen = digest([part.sha256 for part in parts])
    if latest_records(journal).get(iteration, {}).get("seen") == seen:
        return
    found: dict[str, Json] = {"iteration": iteration, "seen": seen}
    if iteration == 0:
        found["prompts"] = _of_prompts(_prompt_texts(list(run.prompts.values())))
    else:
        found["candidates"] = _sample_copies(run, parts)
    run.store.when_there_is_room(lambda: journal.record(EVENT, found))


def latest_records(journal: Reader) -> dict[int, dict[str, Any]]:
    """Return the latest record of each iteration."""
    events = cast("list[dict[str, Any]]", journal.events(EVENT))
    return {event["iteration"]: event for event in events}


def report_iteration(journal: Reader, iteration: int) -> Mapping[str, Json] | None:
    """Return the record of an iteration, for people and programs."""
    found = latest_records(journal).get(iteration)
    return found and {name: found[name] for name in ("candidates", "prompts") if name in found}


def count_copies(found: Alike) -> dict[str, Json]:
    """Count copies: `copies_within` and `near_within` do not count the first of each."""
    return {
        "rows": found.texts.height,
        "copies_within": found.copies_within,
        "copies_across": found.copies_across,
        "near_within": found.within.height,
        "near_across": found.across.height,
    }


def _of_prompts(prompts: pl.DataFrame) -> dict[str, Json]:
    found = count_copies(_alike(prompts))
    sizes = {split: prompts.filter(split=split).height for split in (HELD_OUT, DEV)}
    tested = _overlaps(prompts, HELD_OUT, TRAIN)
    return {
        "rows": found["rows"],
        "copies_across": found["copies_across"],
        "near_across": found["near_across"],
        "held_out": sizes[HELD_OUT],
        "overlapping": len(tested),
        "dev": sizes[DEV],
        "dev_overlapping": len(_overlaps(prompts, DEV, TRAIN)),
        "dev_in_held_out": len(_overlaps(prompts, DEV, HELD_OUT)),
        **_by_eval_set(prompts.filter(split=HELD_OUT), tested),
    }


def _by_eval_set(held_out: pl.DataFrame, overlapping: pl.Series) -> dict[str, Json]:
    """Count the prompts of each named set, and the overlapping ones; empty without named sets."""
    named = held_out.filter(pl.col("eval_set").is_not_null())
    if named.is_empty():
        return {}
    shared = pl.col("id").is_in(overlapping.implode())
    counts = (
        named.group_by("eval_set").agg(held_out=pl.len(), overlapping=shared.sum()).sort("eval_set")
    )
    return {"eval_sets": {row.pop("eval_set"): row for row in counts.to_dicts()}}


def _alike(prompts: pl.DataFrame) -> Alike:
    """Compare prompts with each other: each is its own group."""
    return alike(prompts.select("id", pl.col("id").alias("group"), "text"))


def _overlaps(prompts: pl.DataFrame, tested: Split, known: Split) -> pl.Series:
    return overlaps(prompts.filter(split=known), prompts.filter(split=tested))


def _prompt_texts(prompts: list[Prompt]) -> pl.DataFrame:
    rows = [
        (p.prompt_id, p.split, p.family, p.eval_set, text)
        for p in prompts
        for text in ("\n".join(m.content for m in p.messages if m.role != SYSTEM),)
    ]
    names = ["id", "split", "family", "eval_set", "text"]
    schema = dict.fromkeys(names, pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row")


def _sample_copies(run: "Run", parts: list[Part]) -> dict[str, Json]:
    """Count copies among all candidates, and near copies among a sample of chunks."""
    every = max(1, -(-sum(part.rows for part in parts) // SAMPLE))
    keys: list[pl.DataFrame] = []

    def sample() -> Iterator[pl.DataFrame]:
        for part in parts:
            texts = _texts(run, part)
            keys.append(texts.select("group", copy_key(pl.col("text")).alias("key")))
            if part.chunk % every == 0:
                yield texts

    none = pl.DataFrame(schema=dict.fromkeys(("id", "group", "text"), pl.String))
    near = count_copies(alike(pl.concat([none, *sample()])))
    empty = pl.DataFrame(schema={"group": pl.String, "key": pl.UInt64})
    copies = Alike(texts=pl.concat([empty, *keys]), within=empty, across=empty)
    return {
        **count_copies(copies),
        "sampled": near["rows"],
        "near_within": near["near_within"],
        "near_across": near["near_across"],
    }


def _texts(run: "Run", part: Part) -> pl.DataFrame:
    table = cast("pa.Table", run.store.table(Candidate, part.unit))
    frame = pl.DataFrame(table.select(["candidate_id", "prompt_id", "text", "kind"]))
    return frame.filter(pl.col("kind") != "greedy").select(
        pl.col("candidate_id").alias("id"), pl.col("prompt_id").alias("group"), "text"
    )
