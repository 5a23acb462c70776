"""The page of `show`, independent of whether a terminal or a notebook draws it.

Text here is raw: the code that draws a page escapes it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ....stores.records import (
    SCORED,
    Candidate,
    Critique,
    Demonstration,
    Pair,
    Preference,
    Reward,
    UnpairedAnswer,
)
from ...data.row_fields import HUMAN
from ...data.short_id import short_id
from .claim_story import claims_of, stated
from .grade_story import grades_of, said_of
from .story import Story
from .why import (
    critiques_of,
    why_demonstration,
    why_pair,
    why_unpaired,
    why_yield,
)
from .word_diff import Span, word_diff

Learned = Pair | Demonstration | UnpairedAnswer
"""A row to train on."""
POLICY = 40
BARS = {-1: "▁", 0: "▅", 1: "█", None: "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A text with its judgments next to it, and the rows made from it below."""

    title: str
    text: tuple[Span, ...]
    beside: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of short texts; the first `names` columns are text, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """Boxes under a heading, then a table, then single lines."""

    heading: str
    boxes: tuple[Box, ...] = ()
    grid: Grid | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The page of one id."""

    title: str
    sections: tuple[PageSection, ...] = field(default=())


def plain_text(text: str) -> tuple[Span, ...]:
    """Return a text as one unchanged span."""
    return (Span("same", text),)


def story_page(story: Story) -> Page:
    """Return the page of a prompt; the row of the requested id is marked."""
    prompt = story.prompt
    about = f"{prompt.task}, {prompt.split}, source {prompt.source or 'unknown'}"
    boxes = [Box(title=f"prompt ({about})", text=plain_text(prompt.instruction))]
    if prompt.reference is not None:
        boxes.append(Box(title="reference", text=plain_text(prompt.reference)))
    rows = (*story.candidates, *story.yields)
    sections = [_iteration(story, number) for number in sorted({row.iteration for row in rows})]
    return Page(
        title=f"{prompt.prompt_id}, run {story.run}",
        sections=(PageSection(heading="", boxes=tuple(boxes)), *sections),
    )


def _iteration(story: Story, number: int) -> PageSection:
    candidates = [c for c in story.candidates if c.iteration == number]
    lines = [why_yield(story, row) for row in story.yields if row.iteration == number]
    lines += _trained(story, number)
    return PageSection(
        heading=f"iteration {number}",
        boxes=tuple(_alike(story, group) for group in _groups(story, candidates)),
        lines=tuple(lines),
    )


def _trained(story: Story, number: int) -> list[str]:
    """Return which checkpoint was trained on the prompt's rows of an iteration, if one was."""
    made = [row for row in story.checkpoints if row.iteration == number and row.parent_id]
    learned = (*story.pairs, *story.demonstrations, *story.unpaired_answers)
    if not made or all(row.iteration != number for row in learned):
        return []
    return [f"{made[0].name} was trained on rows of this iteration"]


def _groups(story: Story, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group candidates of one kind with the same text and the same judgments."""
    groups: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        said = tuple(
            (c.critic, c.status, c.aspects, c.text)
            for c in critiques_of(story, candidate.candidate_id)
        )
        author = (candidate.kind, candidate.policy, candidate.parent_id, candidate.finish_reason)
        rest = (candidate.principle, *said_of(story, candidate.candidate_id))
        groups.setdefault((author, candidate.text, said, rest), []).append(candidate)
    return list(groups.values())


def _alike(story: Story, group: Sequence[Candidate]) -> Box:
    """Return the box of equal candidates: one in full, and the rows made from the others."""
    boxes = [_candidate(story, candidate) for candidate in group]
    if len(boxes) == 1:
        return boxes[0]
    shown = next((n for n, box in enumerate(boxes) if box.marked), 0)
    others = [n for n in range(len(boxes)) if n != shown]
    made = [
        f"{short_id(group[n].candidate_id)}: {line}"
        for n in others
        for line in boxes[n].below
        if line not in boxes[shown].below
    ]
    named = ", ".join(short_id(group[n].candidate_id) for n in others)
    return replace(
        boxes[shown],
        title=f"x{len(boxes)} {boxes[shown].title}",
        below=(*boxes[shown].below, f"said again by {named}", *made),
    )


def _candidate(story: Story, candidate: Candidate) -> Box:
    identity = candidate.candidate_id
    critiques = critiques_of(story, identity)
    roles = _roles(story, identity)
    named = {
        identity,
        *(c.critique_id for c in critiques),
        *(g.grade_id for g in grades_of(story, identity)),
        *claims_of(story, identity),
        *(row for row, _ in roles),
    }
    return Box(
        title=_title(story, candidate),
        text=_changes(story, candidate),
        beside=(
            *(line for critique in critiques for line in _said(critique)),
            *said_of(story, identity),
            *stated(story, identity),
        ),
        below=(
            *_told(candidate),
            *(line for _, line in roles),
            *_measured(story, identity),
        ),
        marked=story.asked.id in named,
    )


def _title(story: Story, candidate: Candidate) -> str:
    parts = [f"{candidate.kind} {short_id(candidate.candidate_id)}"]
    if candidate.parent_id is not None:
        made = "refines" if candidate.kind == "refinement" else "chosen from"
        parts.append(f"{made} {short_id(candidate.parent_id)}")
    if candidate.critique_id is not None:
        parts.append(f"after critique {short_id(candidate.critique_id)}")
    rewards = [r for r in story.rewards if r.candidate_id == candidate.candidate_id]
    parts += [_reward(r, named=len(rewards) > 1) for r in rewards]
    if candidate.finish_reason != "stop":
        parts.append(f"ended by {candidate.finish_reason}")
    return ", ".join([*parts, f"by {_policy(story, candidate)}"])


def _policy(story: Story, candidate: Candidate) -> str:
    """Return a text's author: a checkpoint of the run, or else the row's policy."""
    for checkpoint in story.checkpoints:
        if checkpoint.checkpoint_id == candidate.policy:
            return f"M_{checkpoint.iteration}"
    return candidate.model if candidate.kind == "sample" else candidate.policy[:POLICY]


def _told(candidate: Candidate) -> tuple[str, ...]:
    """Return the principle that a text was written under, if any."""
    return () if candidate.principle is None else (f"principle: {candidate.principle}",)


def _reward(reward: Reward, *, named: bool) -> str:
    by = f" ({short_id(reward.reward_model)})" if named else ""
    if reward.score is None:
        return f"no reward ({reward.status}){by}"
    return f"reward {reward.score:.3f}{by}"


def _changes(story: Story, candidate: Candidate) -> tuple[Span, ...]:
    """Return the text; for a refinement, its changes to the refined text."""
    for parent in story.candidates:
        if parent.candidate_id == candidate.parent_id:
            return word_diff(parent.text, candidate.text)
    return plain_text(candidate.text)


def _said(critique: Critique) -> list[str]:
    """Return a critique's ratings on one line, and its text on the next."""
    rated = ", ".join(
        f"{BARS[a.rating]} {a.name} {'unread' if a.rating is None else a.rating}"
        for a in critique.aspects
    )
    ratings = rated if critique.status == SCORED else f"unscored: {critique.status}"
    said = [f"{short_id(critique.critique_id)}{_by_whom(critique)}: {ratings}"]
    return [*said, *filter(None, [_comment(critique)])]


def _by_whom(critique: Critique) -> str:
    """Return which person judged, and when; empty for a model, which is the run's critic."""
    if not critique.critic.startswith(HUMAN):
        return ""
    return f" by {critique.critic}{_at(critique.judged_at)}"


def _at(time: str | None) -> str:
    return "" if time is None else f" at {time}"


def _comment(critique: Critique) -> str:
    """Return a critique's text without the dictionary at its end, which repeats its ratings."""
    head, brace, last = critique.text.rstrip().rpartition("{")
    try:
        told = json.loads(brace + last) if brace else None
    except ValueError:
        told = None
    rated = {aspect.name: aspect.rating for aspect in critique.aspects}
    return head.rstrip() if critique.status == SCORED and told == rated else critique.text


def _roles(story: Story, candidate_id: str) -> list[tuple[str, str]]:
    """Return the rows to train on that a candidate is part of, each with the reason."""
    own = (*story.pairs, *story.demonstrations, *story.unpaired_answers)
    made: list[tuple[str, Learned]] = [("", row) for row in own]
    for table in story.derived:
        where = f"derived table {table.name}: "
        derived = (*table.pairs, *table.demonstrations, *table.unpaired_answers)
        made += [(where, row) for row in derived]
    roles = [(where, _role(story, candidate_id, row)) for where, row in made]
    told = [_verdict(candidate_id, row) for row in story.preferences]
    return [
        *((role[0], where + role[1]) for where, role in roles if role is not None),
        *(verdict for verdict in told if verdict is not None),
    ]


def _verdict(candidate_id: str, row: Preference) -> tuple[str, str] | None:
    """Return the id of a preference on a candidate and its verdict; else None."""
    if candidate_id not in (row.first_id, row.second_id):
        return None
    side, other = (
        ("first", row.second_id) if candidate_id == row.first_id else ("second", row.first_id)
    )
    verdict = "preferred to" if row.preferred == side else "less liked than"
    if row.preferred is None:
        verdict = f"no verdict ({row.status}) beside"
    elif row.preferred == "tie":
        verdict = "as good as"
    named = f"preference {row.preference_id} of {row.annotator}{_at(row.judged_at)}"
    return row.preference_id, f"{named}: {verdict} {other}"


def _role(story: Story, candidate_id: str, row: Learned) -> tuple[str, str] | None:
    """Return the id of a row that a candidate is part of and its role there; else None."""
    if isinstance(row, Pair):
        return _side(story, candidate_id, row)
    if candidate_id != row.candidate_id:
        return None
    if isinstance(row, Demonstration):
        identity, why = row.demonstration_id, why_demonstration(story, row)
        return identity, f"demonstration {identity}: {why}"
    identity, why = row.unpaired_id, why_unpaired(story, row)
    return identity, f"unpaired answer {identity}: {why}"


def _side(story: Story, candidate_id: str, row: Pair) -> tuple[str, str] | None:
    """Return the id of a pair that a candidate is a side of, and which; else None."""
    if candidate_id == row.chosen_id:
        return row.pair_id, f"chosen of pair {row.pair_id}: {why_pair(story, row)}"
    if candidate_id == row.rejected_id:
        return row.pair_id, f"rejected of pair {row.pair_id} against {row.chosen_id}"
    return None


def _measured(story: Story, candidate_id: str) -> Sequence[str]:
    """Return the evaluation's numbers on a greedy answer."""
    numbers = [
        f"{score.metric} {score.value:g}"
        for score in story.scores
        if score.candidate_id == candidate_id and not score.metric.startswith("rating:")
    ]
    return [f"measured: {', '.join(numbers)}"] if numbers else []
