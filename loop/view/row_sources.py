# pyright: basic
"""Where the rows of a list come from: the table that answers most of its filters, and the order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ...stores.index import SEARCHED, Index, index_folder, part_key
from ...stores.lake import RunReader
from ..data.judged_candidates import last_of_candidate
from ..data.splits import HELD_OUT
from ..lake.query.figures import shown_split
from ..lake.query.row_lists import ListError, RowSelection, check, contents, rating_conditions
from ..lake.search.text_search import TextSearch, matches
from ..lake.trace.diff import DiffRequest, diff
from .wanted import Flip, Wanted

Listed = Literal["prompts", "candidates", "critiques", "pairs"]
KEYS: Mapping[Listed, str] = {
    "prompts": "prompt_id",
    "candidates": "candidate_id",
    "critiques": "critique_id",
    "pairs": "pair_id",
}
MATCHES = 200
"""So many matches of the search index are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a list's rows come from; `answered` are conditions on its columns.

    `order` is a column to sort by, if not the stored order; `missing` says what else the filters
    read, from other tables.
    """

    key: str
    frame: pl.LazyFrame
    total: int
    order: str | None = None
    descending: bool = False
    answered: list[pl.Expr] = field(default_factory=list)
    missing: Sequence[str] = ()

    def block(self, at: int, size: int, conditions: Sequence[pl.Expr]) -> pl.LazyFrame:
        """Return those of some rows of the list that pass, with their places in it.

        A list in an order of its own holds only rows that pass.
        """
        if self.order is None:
            return self.frame.slice(at, size).with_row_index("at", offset=at).filter(*conditions)
        rows = self.frame.filter(*conditions)
        best = rows.select(self.order).drop_nulls()
        pick = pl.LazyFrame.top_k if self.descending else pl.LazyFrame.bottom_k
        found = pick(best, at + size, by=self.order).collect()[self.order]
        if len(found) == at + size:
            last = found.min() if self.descending else found.max()
            kept = pl.col(self.order)
            rows = rows.filter(kept >= last if self.descending else kept <= last)
        # Equal values in the order of their ids, so that no page repeats another's rows.
        by = [self.order, self.key]
        narrow = rows.select(self.key, "prompt_id", self.order)
        ordered = narrow.sort(by, descending=[self.descending, False], nulls_last=True)
        return ordered.slice(at, size).with_row_index("at", offset=at)


def source_of(lake: Path, run: RunReader, table: Listed, wanted: Wanted) -> Source:
    """Return where the rows of a list come from: what can answer most of its filters at once."""
    rows = wanted.rows
    if wanted.words is not None:
        return _matching(lake, run, table, wanted, wanted.words)
    if table == "candidates":
        return _candidates(run, rows)
    frame = run.scan(table, iteration=None if table == "prompts" else rows.iteration)
    total = _total(run, table, rows.iteration)
    if table == "critiques":
        texts = RowSelection(text=rows.text).conditions([pl.col("text")])
        return Source(
            key=KEYS[table],
            frame=frame,
            total=total,
            answered=[*texts, *rating_conditions(run, rows)],
        )
    if table == "prompts":
        texts = RowSelection(text=rows.text).conditions([contents("messages")])
        return Source(key=KEYS[table], frame=frame, total=total, answered=[*texts])
    margin = pl.col("chosen_reward") - pl.col("rejected_reward")
    own = RowSelection(rule=rows.rule, text=rows.text)
    texts = [contents(name) for name in ("prompt", "chosen", "rejected")]
    return Source(
        key="pair_id",
        frame=frame.with_columns(margin=margin),
        total=total,
        **_order(rows.sort, {"margin": "margin"}),
        answered=[*own.conditions(texts)],
    )


def _candidates(run: RunReader, rows: RowSelection) -> Source:
    """Return candidates from the table that answers their order, or most of their filters."""
    at = rows.iteration
    rated = rows.aspect is not None or rows.rating is not None or rows.unscored
    rewarded = rows.min_reward is not None or rows.max_reward is not None
    by = (rows.sort or "").removeprefix("-")
    missing = [
        *(["kind"] if rows.kind else []),
        *(["text"] if rows.text else []),
        *(["reward"] if rewarded else []),
        *(["rated"] if rated else []),
    ]
    if by == "reward" or (rewarded and not rated and not by):
        frame = last_of_candidate(run.scan("rewards", iteration=at)).with_columns(reward="score")
        kept = RowSelection(min_reward=rows.min_reward, max_reward=rows.max_reward)
        source, answered, what = "rewards", [*kept.conditions([])], {"reward"}
    elif rated and not by:
        frame = run.scan("critiques", iteration=at)
        source, answered, what = "critiques", [*rating_conditions(run, rows)], {"rated"}
    else:
        frame = run.scan("candidates", iteration=at)
        kept = RowSelection(kind=rows.kind, text=rows.text)
        source, answered = "candidates", [*kept.conditions([pl.col("text")])]
        what = {"kind", "text"}
    return Source(
        key="candidate_id",
        frame=frame,
        total=_total(run, source, at),
        **_order(rows.sort, {"reward": "reward", "length": "completion_tokens"}),
        answered=answered,
        missing=[name for name in missing if name not in what],
    )


def _order(sort: str | None, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a source that say its order.

    Raises:
        ListError: if the list has no such order.
    """
    if sort is None:
        return {}
    by = sort.removeprefix("-")
    check("column to sort by", by, [*columns])
    return {"order": columns[by], "descending": sort.startswith("-")}


def _matching(lake: Path, run: RunReader, table: Listed, wanted: Wanted, words: str) -> Source:
    """Return the best matches of the search index, best first.

    Raises:
        ListError: if the index has no such rows, or no order but its own.
    """
    rows = wanted.rows
    check("list that the search index has", table, SEARCHED)
    if rows.sort is not None:
        raise ListError("matches of the search index come best first: leave out the sorting")
    search = TextSearch(
        text=words,
        table=table,
        run=run.folder.name,
        iteration=None if table == "prompts" else rows.iteration,
        limit=MATCHES,
    )
    found = matches(Index(index_folder(lake)), search)
    key = pl.col("id").alias(KEYS[table])
    ids = found.select(key) if table == "prompts" else found.select(key, "prompt_id")
    rated = rows.aspect is not None or rows.rating is not None or rows.unscored
    rewarded = rows.min_reward is not None or rows.max_reward is not None
    missing = [*(["rated"] if rated else [])]
    if table == "candidates":
        missing += [*(["kind"] if rows.kind else []), *(["reward"] if rewarded else [])]
    return Source(key=KEYS[table], frame=ids.lazy(), total=ids.height, missing=missing)


def unindexed(lake: Path, run: RunReader, table: str) -> int:
    """Return how many rows of a list the search index does not have yet."""
    indexed = Index(index_folder(lake)).indexed()
    parts = run.journal.parts(table=table)
    return sum(p.rows for p in parts if p.rows and part_key(run.folder.name, p) not in indexed)


def _total(run: RunReader, table: str, iteration: int | None) -> int:
    at = None if table == "prompts" else iteration
    return sum(file.rows for file in run.journal.files(table=table, iteration=at))


def prompts_about(run: RunReader, wanted: Wanted) -> pl.Series | None:
    """Return the prompts that a list is about, or None for all.

    Raises:
        ListError: if there is no such task, family or split.
    """
    named = {"task": wanted.rows.task, "family": wanted.family, "split": wanted.split}
    asked = {name: value for name, value in named.items() if value is not None}
    if not asked and wanted.flip is None:
        return None
    prompts = run.scan("prompts").select("prompt_id", "task", "family", "split").collect()
    for name, value in asked.items():
        check(name, value, prompts[name].drop_nulls().unique().to_list())
        prompts = prompts.filter(pl.col(name) == value)
    ids = prompts["prompt_id"].unique()
    return ids if wanted.flip is None else ids.filter(ids.is_in(_flipped(run, wanted).implode()))


def _flipped(run: RunReader, wanted: Wanted) -> pl.Series:
    """Return the prompts whose answers got worse, or better, by the figure that decides."""
    split = shown_split(run) or HELD_OUT
    changes = diff(
        run, DiffRequest(before=wanted.before, after=wanted.after, benchmark=split)
    ).changes
    if not changes.height:
        return pl.Series([], dtype=pl.String)
    way = pl.col("change") < 0 if wanted.flip is Flip.LOST else pl.col("change") > 0
    return changes.filter(way)["prompt_id"].unique()


def narrowed(run: RunReader, rows: RowSelection, block: pl.DataFrame, what: str) -> pl.DataFrame:
    """Return the candidates of a block that pass what another table says of them."""
    if not block.height:
        return block
    about = pl.col("prompt_id").is_in(block["prompt_id"].unique().implode())
    if what == "reward":
        rewards = run.scan("rewards").select("candidate_id", "prompt_id", reward="score")
        other = last_of_candidate(rewards.filter(about))
    elif what == "rated":
        other = run.scan("critiques")
    else:
        other = run.scan("candidates")
    passing = other.filter(about, *_conditions(run, rows, what))
    # Of critiques, those that pass themselves; of candidates, those with one that does.
    key = "critique_id" if "critique_id" in block.columns else "candidate_id"
    ids = passing.select(key).collect()[key]
    return block.filter(pl.col(key).is_in(ids.implode()))


def _conditions(run: RunReader, rows: RowSelection, what: str) -> Iterable[pl.Expr]:
    """Return the conditions on one thing that is said of a candidate."""
    if what == "rated":
        return rating_conditions(run, rows)
    one = {
        "kind": RowSelection(kind=rows.kind),
        "text": RowSelection(text=rows.text),
        "reward": RowSelection(min_reward=rows.min_reward, max_reward=rows.max_reward),
    }
    return one[what].conditions([pl.col("text")])
