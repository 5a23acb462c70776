# pyright: basic
"""A page of a long list, in bounded time: rows are looked at block by block until it is full.

A block holds only what the filters read; what is shown is read for the rows of the page alone. A
filter that few rows pass ends after a while, and the page says how far it looked: the next page
goes on from there.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ...stores.lake import RunReader
from ..data.judged_candidates import CRITIQUE_PLACE
from .row_sources import KEYS, Listed, narrowed, prompts_about, source_of
from .wanted import Wanted

SHOWN: Mapping[Listed, Sequence[str]] = {
    "prompts": ("task", "family", "split", "source", "messages"),
    "candidates": ("prompt_id", "iteration", "kind", "text", "completion_tokens", "finish_reason"),
    "critiques": ("prompt_id", "candidate_id", "iteration", "critic", "aspects", "status", "text"),
    "pairs": (
        *("prompt_id", "iteration", "rule", "chosen", "rejected"),
        *("chosen_reward", "rejected_reward", "chosen_id"),
    ),
}
PAGE = 25
BLOCK, LARGEST = 20_000, 160_000
"""How many rows are looked at first, and at most at a time."""
ENOUGH_S = 0.5
"""After so long no further block is begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRows:
    """The rows of a page, and where the next one begins; None at the end.

    `looked` of `total` rows were looked at from the start of the list on.
    """

    rows: list[dict[str, Any]]
    next: int | None
    looked: int
    total: int


def page_rows(lake: Path, run: RunReader, table: Listed, wanted: Wanted) -> PageRows:
    """Return the page of a list that begins at its `start`.

    Raises:
        ListError: if a filter names what the run does not have.
        DiffError: if prompts that changed are asked for, and nothing was measured twice.
        IndexUnusableError: if the search index is needed, and is not there.
    """
    source = source_of(lake, run, table, wanted)
    allowed = prompts_about(run, wanted)
    conditions = [*source.answered]
    if allowed is not None:
        conditions.append(pl.col("prompt_id").is_in(allowed.implode()))
    found, have, at = list[pl.DataFrame](), 0, wanted.start
    # Without a filter that reads other tables, no more rows are needed than are shown.
    size = BLOCK if source.missing or source.order is None else PAGE
    began = time.monotonic()
    while have < PAGE and at < source.total and (not found or time.monotonic() - began < ENOUGH_S):
        names = list(dict.fromkeys(("at", KEYS[table], "prompt_id")))
        rows = source.block(at, size, conditions).select(names)
        block = (rows if source.missing else rows.head(PAGE - have)).collect()
        ended = source.order is not None and block.height < min(size, PAGE - have)
        for what in source.missing:
            block = narrowed(run, wanted.rows, block, what)
        found.append(block.head(PAGE - have))
        have += found[-1].height
        at = source.total if ended else at + size
        if have == PAGE:
            at = int(found[-1]["at"][-1]) + 1
        size = min(2 * size, LARGEST)
    rows = pl.concat(found) if found else None
    at = min(at, source.total)
    return PageRows(
        rows=[] if rows is None or not rows.height else _filled(run, table, rows),
        next=at if at < source.total else None,
        looked=at,
        total=source.total,
    )


def _filled(run: RunReader, table: Listed, found: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what is shown of the rows of a page; of candidates also rewards and ratings."""
    key = KEYS[table]
    page = found.unique(key, keep="first", maintain_order=True)
    rows = by_id(run, table, key, page, SHOWN[table])
    if table == "candidates":
        rewards = by_id(run, "rewards", key, page, ("score", "status"))
        said = by_id(run, "critiques", key, page, ("aspects", "status"), CRITIQUE_PLACE)
        for identity, row in rows.items():
            row["reward"] = rewards.get(identity, {}).get("score")
            row["critique"] = said.get(identity)
    return [{key: identity, **rows[identity]} for identity in page[key] if identity in rows]


def by_id(
    run: RunReader,
    table: str,
    key: str,
    page: pl.DataFrame,
    columns: Sequence[str],
    order: Sequence[pl.Expr] = (),
) -> dict[str, dict[str, Any]]:
    """Return some columns of the rows with the ids of a page: of each id the last in an order.

    Their places are found by their prompts, and only there the other columns are read: long texts
    and nested columns would be read whole otherwise.
    """
    about = pl.col("prompt_id").is_in(page["prompt_id"].unique().implode())
    places = (
        run.scan(table, columns={"prompt_id"})
        .with_row_index("at")
        .filter(about)
        .select("at")
        .collect()["at"]
        .to_list()
    )
    ids = run.rows_at(table, places, {key, *(n for by in order for n in by.meta.root_names())})
    named = pl.concat(pl.collect_all(ids)).with_columns(at=pl.Series(places)) if ids else None
    if named is None:
        return {}
    asked = named.filter(pl.col(key).is_in(page[key].implode())).sort(*order, "at")
    here = asked.unique(key, keep="last", maintain_order=True)
    wanted = run.rows_at(table, here["at"].sort().to_list(), {key, *columns})
    found = pl.concat(pl.collect_all(wanted)) if wanted else named.head(0)
    return {row.pop(key): row for row in found.iter_rows(named=True)}


SUGGESTED = 300
"""At most so many families are suggested."""
LOOKED_AT = 2_000
"""In so many critiques of each iteration aspects are looked for, to suggest them."""


def choices(run: RunReader) -> dict[str, list[str]]:
    """Return the words that filters may take; of aspects those of each iteration's first rows."""
    prompts = run.scan("prompts").select("task", "family", "split").collect()
    iterations = sorted({stage.iteration for stage in run.journal.stages()})
    aspects = [
        run.scan("critiques", iteration=number)
        .head(LOOKED_AT)
        .select(aspect=pl.col("aspects").list.eval(pl.element().struct.field("name")).explode())
        for number in iterations
    ]
    named = (
        pl.concat(pl.collect_all(aspects))["aspect"] if aspects else pl.Series([], dtype=pl.String)
    )
    rules = run.scan("yields").select("rule").unique().collect()["rule"]
    return {
        **{name: sorted(prompts[name].drop_nulls().unique().to_list()) for name in prompts.columns},
        "family": sorted(prompts["family"].drop_nulls().unique().to_list())[:SUGGESTED],
        "aspect": sorted(named.drop_nulls().unique().to_list()),
        "rule": sorted(rules.to_list()),
        "iteration": [str(number) for number in iterations],
    }
