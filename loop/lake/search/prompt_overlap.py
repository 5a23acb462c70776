# pyright: basic
"""Overlap between the prompts of a run's splits: a run records it once, before it trains."""

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from ....stores.journal_reader import Reader
from ....stores.keys import Json, digest
from ....stores.records import Split
from ...data.contamination import overlaps
from ...data.splits import DEV, HELD_OUT, TRAIN

if TYPE_CHECKING:
    from ...run.run import Run

EVENT = "overlap"
SYSTEM = "system"


def note_overlap(run: "Run") -> None:
    """Record how many prompts of a run overlap with others, unless it is recorded."""
    journal = run.store.journal
    seen = digest([part.sha256 for part in journal.parts(table="prompts", iteration=0)])
    known = cast("list[dict[str, Any]]", journal.events(EVENT))
    if known and known[-1]["seen"] == seen:
        return
    rows = [
        (p.prompt_id, p.split, p.family, p.eval_set, text)
        for p in run.prompts.values()
        for text in ["\n".join(m.content for m in p.messages if m.role != SYSTEM)]
    ]
    names = ("id", "split", "family", "eval_set", "text")
    prompts = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")
    found: dict[str, Json] = {**_counts(prompts), "seen": seen}
    run.store.when_there_is_room(lambda: journal.record(EVENT, found))


def recorded_overlap(journal: Reader) -> dict[str, Json] | None:
    """Return the record of a run; None before it is made."""
    known = cast("list[dict[str, Json]]", journal.events(EVENT))
    return {name: of for name, of in known[-1].items() if name != "seen"} if known else None


def _counts(prompts: pl.DataFrame) -> dict[str, Json]:
    tested = _overlaps(prompts, HELD_OUT, TRAIN)
    named = prompts.filter(pl.col("split") == HELD_OUT, pl.col("eval_set").is_not_null())
    shared = pl.col("id").is_in(tested.implode())
    by_set = named.group_by("eval_set").agg(held_out=pl.len(), overlapping=shared.sum())
    return {
        "held_out": prompts.filter(split=HELD_OUT).height,
        "overlapping": len(tested),
        "dev": prompts.filter(split=DEV).height,
        "dev_overlapping": len(_overlaps(prompts, DEV, TRAIN)),
        "dev_in_held_out": len(_overlaps(prompts, DEV, HELD_OUT)),
        "eval_sets": {row.pop("eval_set"): row for row in by_set.sort("eval_set").to_dicts()},
    }


def _overlaps(prompts: pl.DataFrame, tested: Split, known: Split) -> pl.Series:
    return overlaps(prompts.filter(split=known), prompts.filter(split=tested))
