"""A prompt's page as data: its answers grouped by equal text, with all judgments of each.

It arranges the results of `trace`: the story, the word differences and the reasons are from there.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    Prompt,
    Reward,
    UnpairedAnswer,
)
from ...stores.schemas import plain
from ..lake.trace.claim_story import stated
from ..lake.trace.grade_story import said_of
from ..lake.trace.page import plain_text
from ..lake.trace.story import Story
from ..lake.trace.why import (
    critiques_of,
    why_demonstration,
    why_pair,
    why_unpaired,
    why_yield,
)
from ..lake.trace.word_diff import Span, word_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
    """A candidate with its judgments, and the rows made from it, each with the reason."""

    row: Candidate
    author: str
    critiques: tuple[Critique, ...]
    rewards: tuple[Reward, ...]
    lines: tuple[str, ...]
    roles: tuple[tuple[str, str], ...]
    scores: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualAnswers:
    """Candidates of one kind with the same text, shown as changes of a text that they refine."""

    spans: tuple[Span, ...]
    refines: str | None
    members: tuple[JudgedCandidate, ...]

    @property
    def first(self) -> JudgedCandidate:
        """The one that represents all."""
        return self.members[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A row to train on as the trainer got it, and why it was made.

    `spans` are a pair's chosen answer as changes of the rejected one; `where` names the derived
    table, if it is of one.
    """

    identity: str
    kind: str
    where: str
    why: str
    spans: tuple[Span, ...]
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSheet:
    """A prompt in one iteration."""

    prompt: Prompt
    iterations: tuple[int, ...]
    iteration: int | None
    groups: tuple[EqualAnswers, ...]
    training: tuple[TrainingRow, ...]
    outcomes: tuple[str, ...]
    asked: str


def prompt_sheet(story: Story, iteration: int | None) -> PromptSheet:
    """Return the page of a prompt in an iteration, by default the iteration of the requested row.

    If the requested row is the prompt itself, the default is the last iteration.
    """
    there = tuple(sorted({row.iteration for row in (*story.candidates, *story.yields)}))
    if iteration is None:
        iteration = dict(_named(story)).get(story.asked.id, there[-1] if there else None)
    own = [c for c in story.candidates if c.iteration == iteration]
    return PromptSheet(
        prompt=story.prompt,
        iterations=there,
        iteration=iteration,
        groups=tuple(_groups(story, own)),
        training=tuple(_training(story, iteration)),
        outcomes=tuple(why_yield(story, y) for y in story.yields if y.iteration == iteration),
        asked=story.asked.id,
    )


def _named(story: Story) -> Iterator[tuple[str, int]]:
    """Yield the id of each row of a prompt, and its iteration."""
    yield from ((row.candidate_id, row.iteration) for row in story.candidates)
    yield from ((row.critique_id, row.iteration) for row in story.critiques)
    yield from ((row.grade_id, row.iteration) for row in story.grades)
    yield from ((row.breakdown_id, row.iteration) for row in story.breakdowns)
    yield from ((row.claim_id, row.iteration) for row in story.claims)
    yield from ((row.preference_id, row.iteration) for row in story.preferences)
    yield from ((row.pair_id, row.iteration) for row in story.pairs)
    yield from ((row.demonstration_id, row.iteration) for row in story.demonstrations)
    yield from ((row.unpaired_id, row.iteration) for row in story.unpaired_answers)


def _groups(story: Story, own: Sequence[Candidate]) -> Iterator[EqualAnswers]:
    """Yield candidates together that have the same text, and refine the same text if any."""
    by_id = {candidate.candidate_id: candidate for candidate in story.candidates}
    groups: dict[tuple[str | None, ...], list[Candidate]] = {}
    for candidate in own:
        parent = by_id.get(candidate.parent_id or "")
        key = (candidate.kind, candidate.text, candidate.reasoning, parent and parent.text)
        groups.setdefault(key, []).append(candidate)
    for members in groups.values():
        first = members[0]
        parent = by_id.get(first.parent_id or "")
        yield EqualAnswers(
            spans=plain_text(first.text) if parent is None else word_diff(parent.text, first.text),
            refines=None if parent is None else parent.candidate_id,
            members=tuple(_judged(story, member) for member in members),
        )


def _judged(story: Story, row: Candidate) -> JudgedCandidate:
    identity = row.candidate_id
    return JudgedCandidate(
        row=row,
        author=_author(story, row),
        critiques=tuple(critiques_of(story, identity)),
        rewards=tuple(r for r in story.rewards if r.candidate_id == identity),
        lines=(*said_of(story, identity), *stated(story, identity)),
        roles=tuple(_roles(story, identity)),
        scores=tuple((s.metric, s.value) for s in story.scores if s.candidate_id == identity),
    )


def _author(story: Story, row: Candidate) -> str:
    """Return whose text it is: a checkpoint of the run, or else the row's model."""
    made = {c.checkpoint_id: f"M_{c.iteration}" for c in story.checkpoints}
    return made.get(row.policy, row.model)


def _roles(story: Story, identity: str) -> Iterator[tuple[str, str]]:
    """Yield the rows made from a candidate: the row's id and the candidate's part in it."""
    for pair in story.pairs:
        if identity == pair.chosen_id:
            yield pair.pair_id, "chosen"
        elif identity == pair.rejected_id:
            yield pair.pair_id, "rejected"
    for row in story.demonstrations:
        if identity == row.candidate_id:
            yield row.demonstration_id, "demonstrated"
    for row in story.unpaired_answers:
        if identity == row.candidate_id:
            yield row.unpaired_id, "a success" if row.label else "a failure"


def _training(story: Story, iteration: int | None) -> Iterator[TrainingRow]:
    """Yield the rows to train on, the derived tables' last."""
    tables = [("", story.pairs, story.demonstrations, story.unpaired_answers)]
    tables += [(d.name, d.pairs, d.demonstrations, d.unpaired_answers) for d in story.derived]
    for where, pairs, demonstrations, unpaired in tables:
        yield from (_of_pair(story, p, where) for p in pairs if p.iteration == iteration)
        yield from (_shown(story, d, where) for d in demonstrations if d.iteration == iteration)
        yield from (_unpaired(story, u, where) for u in unpaired if u.iteration == iteration)


def _of_pair(story: Story, pair: Pair, where: str) -> TrainingRow:
    chosen, rejected = (_text(messages) for messages in (pair.chosen, pair.rejected))
    return TrainingRow(
        identity=pair.pair_id,
        kind="pair",
        where=where,
        why=why_pair(story, pair),
        spans=word_diff(rejected, chosen),
        given=_given(prompt=pair.prompt, chosen=pair.chosen, rejected=pair.rejected),
    )


def _shown(story: Story, row: Demonstration, where: str) -> TrainingRow:
    return TrainingRow(
        identity=row.demonstration_id,
        kind="demonstration",
        where=where,
        why=why_demonstration(story, row),
        spans=plain_text(_text(row.completion)),
        given=_given(prompt=row.prompt, completion=row.completion),
    )


def _unpaired(story: Story, row: UnpairedAnswer, where: str) -> TrainingRow:
    return TrainingRow(
        identity=row.unpaired_id,
        kind="unpaired answer",
        where=where,
        why=why_unpaired(story, row),
        spans=plain_text(_text(row.completion)),
        given=_given(prompt=row.prompt, completion=row.completion),
    )


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)


def _given(**columns: Sequence[Message]) -> str:
    """Return the trainer's input as JSON."""
    return json.dumps(
        {name: plain(tuple(messages)) for name, messages in columns.items()},
        ensure_ascii=False,
        indent=1,
    )
