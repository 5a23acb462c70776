# pyright: basic
"""The judged answers of a run, for the check of its critic: drawn, verified, labelled by people.

A run can have millions of answers, and for most of them no label is stored. So a seeded sample of
the requested size is drawn from each group and verified now; equal texts of a prompt are verified
once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from ...critics.verify import FACTS, MATH, Verifier
from ...stores.address import run_argument
from ...stores.frames import frame_rows
from ...stores.keys import derive_seed
from ...stores.lake import RunReader
from ...stores.records import SCORED, Prompt, Split
from ..data.files import InputError
from ..data.judged_candidates import TRUSTED, VERIFIED, is_trusted
from ..data.judged_candidates import VERIFIER as BY_VERIFIER
from .assess import UNDRAWN
from .critic_check import LABEL, PEOPLE, VERIFIER, AnswerGroup

TEXTS_AT_ONCE = 10_000
"""Texts that are verified at once."""
OVERALL, GROUPWISE = "overall", "groupwise"
"""The columns for answers drawn for all groups together, and for their own group."""


class CheckBy(StrEnum):
    """The groupings of answers."""

    TASK = "task"
    KIND = "kind"
    FAMILY = "family"
    ITERATION = "iteration"
    SPLIT = "split"
    ASPECT = "aspect"
    REFERENCE = "reference"


OF_CRITIQUE = (CheckBy.ASPECT, CheckBy.REFERENCE)
"""The groupings by properties of the critique or its prompt, and not of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDraw:
    """Which answers are checked: by which groups, of which split, how many of each at the most."""

    by: tuple[CheckBy, ...] = (CheckBy.TASK,)
    split: Split | None = None
    limit: int = 2000
    seed: int = 0

    @property
    def names(self) -> list[str]:
        """The columns that answers are drawn by."""
        return [name.value for name in self.by if name not in OF_CRITIQUE]

    @property
    def groups(self) -> list[str]:
        """The columns that answers are grouped by."""
        return [name.value for name in self.by]


def judged_groups(run: RunReader, draw: AnswerDraw, verifier: Verifier) -> list[AnswerGroup]:
    """Return the groups of a run's judged answers, with each kind of labels that there is.

    Raises:
        InputError: if no answer was judged, or labels of correctness are missing.
    """
    answers = _answers(run, draw.split)
    if answers.is_empty():
        which = "" if draw.split is None else f" on {draw.split} prompts"
        raise InputError(
            f"run {run.folder.name} contains no answer{which} that was critiqued or rewarded"
        )
    verifiable = answers if verifier.own is not None else answers.filter("verifiable")
    if _only_verified(run):
        verifiable = verifiable.clear()
    drawn = _draw_answers(verifiable, draw)
    labelled = {VERIFIER: drawn.join(_verdicts(run, drawn, verifier), "candidate_id", "left")}
    there = {VERIFIER: verifiable}
    for against, prefix in zip((PEOPLE, LABEL), TRUSTED, strict=True):
        labelled[against] = there[against] = _add_given(run, answers, prefix)
    found = [
        group
        for against, rows in labelled.items()
        if rows.height
        for group in _groups(run, draw, against, rows, there[against])
    ]
    if not found:
        raise InputError(_explain_unlabelled(run))
    return found


def _only_verified(run: RunReader) -> bool:
    """Whether the verifier alone judged the answers, so that it would be compared with itself."""
    others = run.scan("critiques", columns={"critic"}).filter(pl.col("critic") != BY_VERIFIER)
    rewarded = run.scan("rewards", columns={"candidate_id"})
    return all(
        rows.head(1).collect().is_empty()
        for rows in (others.filter(~is_trusted("critic")), rewarded)
    )


def _explain_unlabelled(run: RunReader) -> str:
    """Return why labels of correctness are missing, with a remedy."""
    name = run.folder.name
    why = (
        f"the critic of run {name} is the verifier itself, which cannot be checked by the verifier"
        if _only_verified(run)
        else f"it is not known which answers of run {name} are right: no prompt has a reference "
        "for math or facts, or checks, and neither a person nor a label of its data set rated one"
    )
    return (
        f"{why}; let people rate some: `lpfloop view {run_argument(run.folder)}`, or "
        f"`lpfloop import FILE --run {run_argument(run.folder)} --as annotations`"
    )


def _answers(run: RunReader, split: Split | None) -> pl.DataFrame:
    """Return the judged answers, with the fields of their prompts."""
    critiqued = run.scan("critiques", columns={"candidate_id", "critic"}).filter(
        ~is_trusted("critic")
    )
    rewarded = run.scan("rewards", columns={"candidate_id"})
    judged = pl.concat([critiqued.select("candidate_id"), rewarded])
    columns = {"candidate_id", "prompt_id", "kind", "iteration", "finish_reason"}
    drawn = run.scan("candidates", columns=columns).filter(~pl.col("finish_reason").is_in(UNDRAWN))
    prompts = _prompts(run) if split is None else _prompts(run).filter(pl.col("split") == split)
    return (
        drawn.drop("finish_reason")
        .join(judged, on="candidate_id", how="semi")
        .unique("candidate_id")
        .join(prompts, on="prompt_id")
        .sort("candidate_id")
        .collect(engine="streaming")
    )


def _prompts(run: RunReader) -> pl.LazyFrame:
    columns = {"prompt_id", "task", "split", "family", "cluster", "reference", "checks"}
    by_reference = pl.col("task").is_in([MATH, FACTS]) & pl.col("reference").is_not_null()
    return (
        run.scan("prompts", columns=columns)
        .unique("prompt_id")
        .select(
            "prompt_id",
            "task",
            "split",
            "family",
            cluster=pl.coalesce("cluster", "prompt_id"),
            verifiable=by_reference | (pl.col("checks").list.len() > 0),
        )
    )


def _add_given(run: RunReader, answers: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Return the answers that people rated, or that the data set labels, and if they are right.

    The majority of several decides, and a tie gives null.
    """
    passed = pl.col("passed").cast(pl.Float64).mean()
    right = pl.when(passed != 0.5).then(passed > 0.5)  # noqa: PLR2004 -- a half
    last = _ratings(run, answers, by=prefix).unique(["candidate_id", "critic"], keep="last")
    labels = last.group_by("candidate_id").agg(right=right)
    every = pl.lit(value=True)
    return answers.join(labels, on="candidate_id").with_columns(
        every.alias(OVERALL), every.alias(GROUPWISE)
    )


def _draw_answers(answers: pl.DataFrame, draw: AnswerDraw) -> pl.DataFrame:
    """Return as many answers as asked for, of all and of each group, in an order by the seed."""
    place = pl.col("order").rank("ordinal")
    own = place.over([*draw.names]) if draw.names else place
    generator = np.random.default_rng(derive_seed(draw.seed, "critic-check", "draw"))
    order = pl.Series("order", generator.permutation(answers.height))
    marked = answers.with_columns(order).with_columns(
        (place <= draw.limit).alias(OVERALL), (own <= draw.limit).alias(GROUPWISE)
    )
    return marked.filter(pl.col(OVERALL) | pl.col(GROUPWISE)).drop("order")


def _verdicts(run: RunReader, answers: pl.DataFrame, verifier: Verifier) -> pl.DataFrame:
    """Return by candidate whether the verifier passes it; null if the verifier cannot decide."""
    ids = answers.lazy().select("candidate_id")
    texts = (
        run.scan("candidates", columns={"candidate_id", "prompt_id", "text"})
        .join(ids, on="candidate_id", how="semi")
        .unique("candidate_id")
        .sort("candidate_id")
        .collect(engine="streaming")
    )
    prompt_rows = run.scan("prompts").join(texts.lazy(), on="prompt_id", how="semi")
    prompts = {
        p.prompt_id: p for p in frame_rows(Prompt, prompt_rows.unique("prompt_id").collect())
    }
    distinct = texts.select("prompt_id", "text").unique(maintain_order=True)
    right = pl.Series("right", _right(distinct, prompts, verifier), dtype=pl.Boolean)
    known = distinct.with_columns(right)
    return texts.join(known, on=["prompt_id", "text"]).select("candidate_id", "right")


def _right(
    texts: pl.DataFrame, prompts: Mapping[str, Prompt], verifier: Verifier
) -> list[bool | None]:
    verdicts = [
        verdict
        for part in texts.iter_slices(TEXTS_AT_ONCE)
        for verdict in verifier.verify([(prompts[p], text) for p, text in part.iter_rows()])
    ]
    return [None if v.rating is None else v.rating == 1 for v in verdicts]


def _add_ratings(run: RunReader, labelled: pl.DataFrame, *, against: str) -> pl.DataFrame:
    """Add the last rating of the critic and of the reward model of a run to each answer.

    The verifier's ratings as a critic are left out if the labels are the verifier's: it would agree
    with itself.
    """
    ratings = _ratings(run, labelled)
    if against == VERIFIER:
        ratings = ratings.filter(pl.col("critic") != BY_VERIFIER)
    rewards = (
        run.scan("rewards", columns={"candidate_id", "score"})
        .join(labelled.lazy().select("candidate_id"), on="candidate_id", how="semi")
        .select("candidate_id", reward="score")
        .collect()
        .unique("candidate_id", keep="last")
    )
    last = ratings.unique("candidate_id", keep="last", maintain_order=True)
    return (
        labelled.join(last, on="candidate_id", how="left", maintain_order="left")
        .join(rewards, on="candidate_id", how="left", maintain_order="left")
        .with_columns(pl.col("unread").fill_null(value=False))
    )


def _ratings(run: RunReader, answers: pl.DataFrame, *, by: str | None = None) -> pl.DataFrame:
    """Return the critiques of answers: the mean rating, and if it passes.

    The critiques are from critics whose name begins with `by`, or else from models.
    If a model has critiqued an answer several times, the first counts, as for held-out answers.
    """
    columns = {"candidate_id", "critic", "aspects", "status", "reference_used", "sample"}
    name, rating = (pl.element().struct.field(field) for field in ("name", "rating"))
    named, first = pl.col("critic").str.starts_with(by or ""), pl.col("sample").is_null()
    which = ~is_trusted("critic") & first if by is None else named
    own = (pl.col("critic") == BY_VERIFIER) | pl.lit(value=by is not None)
    rated = pl.col("aspects").list.filter(name != VERIFIED)
    ratings = pl.col("aspects").list.eval(rating).list.drop_nulls()
    scored = (pl.col("status") == SCORED) & (ratings.list.len() > 0)
    return (
        run.scan("critiques", columns=columns)
        .with_row_index("order")
        .filter(which)
        .join(answers.lazy().select("candidate_id"), on="candidate_id", how="semi")
        .with_columns(aspects=pl.when(own).then("aspects").otherwise(rated))
        .sort("order")
        .select(
            "candidate_id",
            "critic",
            "aspects",
            reference="reference_used",
            unread=pl.col("status") != SCORED,
            rating=pl.when(scored).then(ratings.list.mean()),
            passed=pl.when(scored).then(ratings.list.min() == 1),
        )
        .collect(engine="streaming")
    )


def _groups(
    run: RunReader, draw: AnswerDraw, against: str, labelled: pl.DataFrame, there: pl.DataFrame
) -> Iterator[AnswerGroup]:
    """Yield all labelled answers, then group by group; they were drawn from those `there`."""
    judged = _add_ratings(run, labelled, against=against)
    yield AnswerGroup(against=against, names={}, there=there.height, frame=judged.filter(OVERALL))
    groups, names = draw.groups, draw.names
    if not groups:
        return
    frame = judged.filter(GROUPWISE)
    frame = _by_aspect(frame) if CheckBy.ASPECT in groups else frame
    sizes = {(): there.height}
    if names:
        sizes = {tuple(row[:-1]): row[-1] for row in there.group_by(*names).len().iter_rows()}
    for part in frame.sort(*groups, nulls_last=True).partition_by(*groups, maintain_order=True):
        values = part.row(0, named=True)
        yield AnswerGroup(
            against=against,
            names={name: values[name] for name in groups},
            there=sizes[tuple(values[name] for name in names)],
            frame=part,
        )


def _by_aspect(judged: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each aspect that the critic rates."""
    aspect = pl.col("aspects").struct
    each = judged.filter(pl.col("aspects").list.len() > 0).explode("aspects")
    return each.with_columns(
        aspect=aspect.field("name"), rating=aspect.field("rating").cast(pl.Float64)
    ).with_columns(passed=pl.col("rating") == 1)
