"""The output of `lpfloop show` for an id: the rows around it, as a page and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Pair,
    UnpairedAnswer,
)
from ....stores.schemas import plain
from ...data.judged_candidates import critique_place
from .checkpoint_story import CheckpointStory, checkpoint_page, checkpoint_story
from .find_row import Found
from .html_page import page_html
from .page import Page, story_page
from .story import Story, prompt_story
from .terminal_page import page_text
from .why import reasons

CANDIDATE = (
    "iteration",
    "kind",
    "candidate_id",
    "parent_id",
    "policy",
    "finish_reason",
    "completion_tokens",
    "text",
)
_IDS = pl.List(pl.String)
CANDIDATE_ROW: Mapping[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(CANDIDATE, pl.String),
    "iteration": pl.Int64,
    "completion_tokens": pl.Int64,
    "reward": pl.Float64,
    "critique_id": pl.String,
    "status": pl.String,
    "aspects": pl.List(pl.Struct({"name": pl.String, "rating": pl.Int8, "comment": pl.String})),
    "critique": pl.String,
    "chosen_of": _IDS,
    "rejected_of": _IDS,
    "demonstrated_by": _IDS,
    "unpaired_by": _IDS,
}
EVALUATION_ROW: Mapping[str, type[pl.DataType]] = {
    "checkpoint_id": pl.String,
    "benchmark": pl.String,
    "metric": pl.String,
    "before": pl.Float64,
    "after": pl.Float64,
    "stderr": pl.Float64,
    "n": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class ShownRow:
    """The details of an id: text for a terminal, HTML for a notebook, rows for programs."""

    story: Story | CheckpointStory

    @property
    def page(self) -> Page:
        """The page to draw."""
        if isinstance(self.story, Story):
            return story_page(self.story)
        return checkpoint_page(self.story)

    @property
    def document(self) -> dict[str, object]:
        """The page's rows as JSON data; a prompt's with the reasons for its pairs."""
        rows: dict[str, object] = plain(self.story)
        return {**rows, "why": reasons(self.story)} if isinstance(self.story, Story) else rows

    @property
    def rows(self) -> pl.DataFrame:
        """The page as rows: a prompt's candidates, or a checkpoint's evaluations."""
        if isinstance(self.story, Story):
            return candidate_rows(self.story)
        return evaluation_rows(self.story)

    def __str__(self) -> str:
        return page_text(self.page)

    def _repr_html_(self) -> str:
        return page_html(self.page)


def shown(run: RunReader, found: Found, iteration: int | None = None) -> ShownRow:
    """Return the rows and the page of an id."""
    if found.kind == "checkpoint":
        return ShownRow(checkpoint_story(run, found))
    return ShownRow(prompt_story(run, found, iteration))


def candidate_rows(story: Story) -> pl.DataFrame:
    """Return a row for each candidate, with its judgments and the rows made from it.

    Of several critiques it has the critic's, of several rewards the last; `--json` has all.
    """
    scores = {r.candidate_id: r.score for r in story.rewards}
    said = sorted(story.critiques, key=lambda c: critique_place(c.critic, c.sample))
    critiques = {c.candidate_id: c for c in said}
    rows = [
        {
            **{name: getattr(candidate, name) for name in CANDIDATE},
            "reward": scores.get(candidate.candidate_id),
            **_said(critiques.get(candidate.candidate_id)),
            "chosen_of": _made(story.pairs, "chosen_id", candidate, "pair_id"),
            "rejected_of": _made(story.pairs, "rejected_id", candidate, "pair_id"),
            "demonstrated_by": _made(
                story.demonstrations, "candidate_id", candidate, "demonstration_id"
            ),
            "unpaired_by": _made(story.unpaired_answers, "candidate_id", candidate, "unpaired_id"),
        }
        for candidate in story.candidates
    ]
    return pl.DataFrame(rows, schema=CANDIDATE_ROW)


def evaluation_rows(story: CheckpointStory) -> pl.DataFrame:
    """Return a row for each of the checkpoint's numbers, with its parent's."""
    before = {(e.benchmark, e.metric): e.value for e in story.before}
    rows = [
        {**plain(e), "before": before.get((e.benchmark, e.metric)), "after": e.value}
        for e in story.after
    ]
    return pl.DataFrame(rows, schema=EVALUATION_ROW)


def _said(critique: Critique | None) -> dict[str, object]:
    if critique is None:
        return {}
    return {
        "critique_id": critique.critique_id,
        "status": critique.status,
        "aspects": plain(critique.aspects),
        "critique": critique.text,
    }


def _made(
    rows: Sequence[Pair | Demonstration | UnpairedAnswer],
    side: str,
    candidate: Candidate,
    identity: str,
) -> list[str]:
    """Return the ids of the rows that have a candidate on one side."""
    return [getattr(r, identity) for r in rows if getattr(r, side) == candidate.candidate_id]
