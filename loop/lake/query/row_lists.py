# pyright: basic
"""Lists of a run's rows with filters: critiques, candidates, grades, pairs.

A list is a lazy frame in the order of the stored rows, so the first rows of a long list come
without reading the rest. Filtering by a word that the run does not have is an error, as it is
likely a slip; a filter that matches no row gives no rows. The reward of a candidate that has
several, as imported ones may, is the last that was stored, as for pairs; `lpfloop show` has all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import get_args

import polars as pl

from ....configs.likely_names import listed, meant
from ....critics.status import Status
from ....stores.derived import scan_derived
from ....stores.lake import RunReader
from ....stores.records import SCORED, CandidateKind, GradedAspect
from ...data.judged_candidates import last_of_candidate
from .runs import require_iteration

_LENGTH = pl.col("text").str.len_chars()
_TOKENS = pl.col("completion_tokens")
_MARGIN = pl.col("chosen_reward") - pl.col("rejected_reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """The filters and the order of a list; None is no filter.

    `text` is a part of the text, ignoring case, or a regular expression between slashes. `sort` is
    a column, with a dash before it for descending order.
    """

    iteration: int | None = None
    task: str | None = None
    kind: str | None = None
    rule: str | None = None
    aspect: str | None = None
    rating: int | None = None
    unscored: bool = False
    min_reward: float | None = None
    max_reward: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_margin: float | None = None
    text: str | None = None
    sort: str | None = None
    limit: int | None = None

    def conditions(self, texts: Sequence[pl.Expr]) -> Iterator[pl.Expr]:
        """Yield the conditions on a row, except ratings, which each list handles itself."""
        for name in ("task", "kind", "rule"):
            if (value := getattr(self, name)) is not None:
                yield pl.col(name) == value
        for name in ("reward", "length", "margin"):
            if (least := getattr(self, f"min_{name}")) is not None:
                yield pl.col(name) >= least
        for name in ("reward", "length"):
            if (most := getattr(self, f"max_{name}")) is not None:
                yield pl.col(name) <= most
        if self.text is not None:
            pattern = _pattern(self.text)
            yield pl.any_horizontal(text.str.contains(pattern) for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows before they are filtered: the columns to show, and those that filters read."""

    run: RunReader
    frame: pl.LazyFrame
    columns: Sequence[str]
    texts: Sequence[pl.Expr]
    conditions: list[pl.Expr] = field(default_factory=list[pl.Expr])

    def wanted(self, wanted: RowSelection) -> pl.LazyFrame:
        """Return the rows that pass the filters, sorted.

        Raises:
            ListError: if the run has no such task, kind or column to sort by.
        """
        _check_words(self.run, wanted)
        conditions = [*self.conditions, *wanted.conditions(self.texts)]
        order = (wanted.sort or "").removeprefix("-")
        used = {name for condition in conditions for name in condition.meta.root_names()}
        frame = self._with(used | {order} | set(self.columns))
        for condition in conditions:
            frame = frame.filter(condition)
        if wanted.sort is not None:
            check("column to sort by", order, frame.collect_schema().names())
            descending = wanted.sort.startswith("-")
            frame = frame.sort(order, descending=descending, nulls_last=True, maintain_order=True)
        if wanted.limit is not None:
            frame = frame.head(wanted.limit)
        return frame.select(self.columns)

    def _with(self, names: set[str]) -> pl.LazyFrame:
        """Return the rows with the requested columns of other tables."""
        frame = self.frame
        prompts = self.run.scan("prompts").select("prompt_id", "task")
        kinds = self.run.scan("candidates").select("candidate_id", "kind")
        rewards = last_of_candidate(self.run.scan("rewards").select("candidate_id", reward="score"))
        for other, key, name in (
            (prompts, "prompt_id", "task"),
            (kinds, "candidate_id", "kind"),
            (rewards, "candidate_id", "reward"),
        ):
            have = frame.collect_schema().names()
            if name in names and name not in have and key in have:
                frame = frame.join(other, on=key, how="left", maintain_order="left")
        return frame


class ListError(ValueError):
    """A filter or an order that does not fit a list."""


def critiques(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return critiques; their length is in characters, the reward that of the candidate."""
    frame = run.scan("critiques", iteration=wanted.iteration)
    return Listing(
        run=run,
        frame=frame.with_columns(length=_LENGTH),
        columns=frame.collect_schema().names(),
        texts=[pl.col("text")],
        conditions=rating_conditions(run, wanted),
    ).wanted(wanted)


def candidates(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return candidates with task and reward; length is in tokens, ratings are their critiques'."""
    frame = run.scan("candidates", iteration=wanted.iteration)
    return Listing(
        run=run,
        frame=frame.with_columns(length=_TOKENS),
        columns=[*frame.collect_schema().names(), "task", "reward"],
        texts=[pl.col("text")],
        conditions=_by_rating(run, wanted, "candidate_id"),
    ).wanted(wanted)


def grades(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return grades; length is the rationale's, in characters, reward is the candidate's."""
    frame = run.scan("grades", iteration=wanted.iteration)
    conditions: list[pl.Expr] = []
    if wanted.aspect is not None:
        scored = frame.select("aspect").unique().sort("aspect").collect()["aspect"].to_list()
        check("aspect", wanted.aspect, [*dict.fromkeys([*get_args(GradedAspect), *scored])])
        conditions.append(pl.col("aspect") == wanted.aspect)
    if wanted.rating is not None:
        conditions.append(pl.col("rating") == wanted.rating)
    if wanted.unscored:
        conditions.append(~pl.col("status").is_in([SCORED, Status.NOT_APPLICABLE.value]))
    return Listing(
        run=run,
        frame=frame.with_columns(length=pl.col("rationale").str.len_chars()),
        columns=frame.collect_schema().names(),
        texts=[pl.col("rationale"), pl.col("type_rationale")],
        conditions=conditions,
    ).wanted(wanted)


def pairs(run: RunReader, wanted: RowSelection, derived: str | None = None) -> pl.LazyFrame:
    """Return pairs, of a derived table if one is named.

    Reward, and length in characters, are the chosen answer's; ratings are the rejected one's.
    """
    if derived is None:
        frame = run.scan("pairs", iteration=wanted.iteration)
    else:
        frame = scan_derived(run.folder, derived, "pairs")
        if wanted.iteration is not None:
            frame = frame.filter(pl.col("iteration") == wanted.iteration)
    if wanted.rule is not None:
        known = frame.select("rule").unique().collect().to_series().to_list()
        check("rule", wanted.rule, known)
    texts = [contents(name) for name in ("prompt", "chosen", "rejected")]
    return Listing(
        run=run,
        frame=frame.with_columns(
            length=contents("chosen").str.len_chars(), margin=_MARGIN, reward="chosen_reward"
        ),
        columns=frame.collect_schema().names(),
        texts=texts,
        conditions=_by_rating(run, wanted, "rejected_id"),
    ).wanted(wanted)


def rating_conditions(run: RunReader, wanted: RowSelection) -> list[pl.Expr]:
    """Return the conditions on a critique's ratings.

    Raises:
        ListError: if no critique of the run rates the aspect.
    """
    conditions: list[pl.Expr] = []
    if wanted.aspect is not None:
        _check_aspect(run, wanted.aspect)
    if wanted.aspect is not None or wanted.rating is not None:
        conditions.append(_rated(wanted.aspect, wanted.rating))
    if wanted.unscored:
        conditions.append(pl.col("status") != SCORED)
    return conditions


def _by_rating(run: RunReader, wanted: RowSelection, key: str) -> list[pl.Expr]:
    """Return the conditions on the ratings of the candidate `key`."""
    conditions = rating_conditions(run, wanted)
    if not conditions:
        return []
    rated = run.scan("critiques", iteration=wanted.iteration).filter(*conditions)
    ids = rated.select("candidate_id").collect().to_series()
    return [pl.col(key).is_in(ids.implode())]


def _rated(aspect: str | None, rating: int | None) -> pl.Expr:
    """Whether any aspect has this name and this rating."""
    element = pl.element().struct
    match = pl.lit(value=True)
    if aspect is not None:
        match = match & (element.field("name") == aspect)
    if rating is not None:
        match = match & (element.field("rating") == rating)
    return pl.col("aspects").list.eval(match).list.any()


def contents(name: str) -> pl.Expr:
    """Return the text of a conversation."""
    return pl.col(name).list.eval(pl.element().struct.field("content")).list.join("\n")


def _pattern(text: str) -> str:
    """Return the regular expression that finds `text`.

    Raises:
        ListError: if it is an invalid regular expression.
    """
    if not (len(text) > 1 and text.startswith("/") and text.endswith("/")):
        return f"(?i){pl.escape_regex(text)}"
    try:
        pl.Series([""]).str.contains(text[1:-1])
    except pl.exceptions.ComputeError as error:
        raise ListError(f"--text {text} is not a valid regular expression") from error
    return text[1:-1]


def _check_words(run: RunReader, wanted: RowSelection) -> None:
    require_iteration(run, wanted.iteration)
    if wanted.task is not None:
        tasks = run.scan("prompts").select("task").unique().collect().to_series().to_list()
        check("task", wanted.task, tasks)
    if wanted.kind is not None:
        check("kind", wanted.kind, get_args(CandidateKind))


def _check_aspect(run: RunReader, aspect: str) -> None:
    """Find one critique that rates an aspect; only if there is none, list the aspects."""
    critiques = run.scan("critiques")
    if critiques.filter(_rated(aspect, None)).select("iteration").head(1).collect().height:
        return
    names = pl.col("aspects").list.eval(pl.element().struct.field("name"))
    known = critiques.select(names.explode().unique()).collect().to_series().drop_nulls()
    check("aspect", aspect, known.to_list())


def check(what: str, word: str, known: Sequence[str]) -> None:
    """Require that a word is one of those that a run has.

    Raises:
        ListError: naming those that it has.
    """
    if word not in known:
        there = listed(sorted(set(known)))
        raise ListError(f"there is no {what} {word!r} here; {meant(word, known)}there are: {there}")
