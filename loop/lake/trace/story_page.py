"""The page of a prompt: its answers with their judgments, and the rows made from them and why."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....critics.grading.grade_reply import SCALES
from ....stores.records import (
    SCORED,
    Breakdown,
    Candidate,
    Claim,
    Critique,
    Demonstration,
    Grade,
    Pair,
    Preference,
    Reward,
    UnpairedAnswer,
)
from ...data.judged_candidates import HUMAN
from ...data.text import short_id
from .page import Box, Page, PageSection, Remark, Span, plain_text, word_diff
from .story import Story
from .why import (
    critiques_of,
    rated_as,
    why_demonstration,
    why_outcome,
    why_pair,
    why_unpaired,
)

SIGNS = {"supported": "+", "not_supported": "-", "irrelevant": "o", None: "?"}
_PLACES: dict[str, int] = {aspect: place for place, aspect in enumerate(SCALES)}


def story_page(story: Story, iteration: int | None = None) -> Page:
    """Return the page of a prompt, by default of all iterations; the requested row is marked."""
    prompt = story.prompt
    about = (prompt.task, prompt.family, prompt.split, f"source {prompt.source or 'unknown'}")
    title = f"prompt ({', '.join(filter(None, about))})"
    several = len(prompt.messages) > 1
    boxes = [
        Box(
            title=f"{title}: {message.role}" if several else title,
            text=plain_text(message.content),
        )
        for message in prompt.messages
    ]
    if prompt.reference is not None:
        boxes.append(Box(title="reference", text=plain_text(prompt.reference)))
    checks = tuple(f"check: {check.kind} {check.argument}" for check in prompt.checks)
    shown = [number for number in story.iterations if iteration in (None, number)]
    return Page(
        title=f"{prompt.prompt_id}, run {story.run}",
        sections=(
            PageSection(heading="", boxes=tuple(boxes), lines=checks),
            *(_iteration(story, number) for number in shown),
        ),
    )


def _iteration(story: Story, number: int) -> PageSection:
    lines = [why_outcome(row) for row in story.pairing_outcomes if row.iteration == number]
    learned = (*story.pairs, *story.demonstrations, *story.unpaired_answers)
    made = [row for row in story.checkpoints if row.iteration == number and row.parent_id]
    if made and any(row.iteration == number for row in learned):
        lines.append(f"{made[0].name} was trained on rows of this iteration")
    return PageSection(
        heading=f"iteration {number}",
        boxes=tuple(_boxes(story, [c for c in story.candidates if c.iteration == number])),
        lines=tuple(lines),
    )


def _boxes(story: Story, candidates: Sequence[Candidate]) -> Iterator[Box]:
    """Yield a box for all candidates of one kind with the same text and the same judgments."""
    groups: dict[object, list[Candidate]] = {}
    for one in candidates:
        remarks = [
            (c.critic, c.status, c.aspects, c.text) for c in critiques_of(story, one.candidate_id)
        ]
        grades = [(g.aspect, g.rating, g.status, g.rationale) for g in _grades_of(story, one)]
        author = (one.kind, one.policy, one.parent_id, one.finish_reason, one.principle)
        tested = one.candidate_id in story.smoke_tested
        key = (author, tested, one.text, one.reasoning, tuple(remarks), tuple(grades))
        groups.setdefault(key, []).append(one)
    for group in groups.values():
        yield _alike(group, [_candidate(story, one) for one in group])


def _alike(group: Sequence[Candidate], boxes: Sequence[Box]) -> Box:
    """Return the box of equal candidates: one in full, and the rows made from the others."""
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
        below=(*boxes[shown].below, f"the same text: {named}", *made),
        ids=(*boxes[shown].ids, *(identity for n in others for identity in boxes[n].ids)),
    )


def _candidate(story: Story, candidate: Candidate) -> Box:
    identity = candidate.candidate_id
    critiques, grades = critiques_of(story, identity), _grades_of(story, candidate)
    claims = [claim for claim in story.claims if claim.candidate_id == identity]
    broken = [row for row in story.breakdowns if row.candidate_id == identity]
    roles = [*_roles(story, identity)]
    ids = (
        identity,
        *(c.critique_id for c in critiques),
        *(g.grade_id for g in grades),
        *(b.breakdown_id for b in broken),
        *(c.claim_id for c in claims),
        *(row for row, _ in roles),
    )
    remarks = [
        *([Remark(head="its thoughts", text=candidate.reasoning)] if candidate.reasoning else []),
        *map(_of_critique, critiques),
        *map(_of_grade, grades),
        *(_of_breakdown(row) for row in broken if row.status != SCORED),
        *map(_of_claim, sorted(claims, key=lambda claim: (claim.judge, claim.place))),
    ]
    principle = [] if candidate.principle is None else [f"principle: {candidate.principle}"]
    return Box(
        title=_title(story, candidate),
        text=_changes(story, candidate),
        remarks=tuple(remarks),
        below=(*principle, *(line for _, line in roles), *_measured_lines(story, identity)),
        ids=ids,
        marked=story.requested.id in ids,
    )


def _title(story: Story, candidate: Candidate) -> str:
    parts = [f"{candidate.kind} {short_id(candidate.candidate_id)}"]
    if candidate.candidate_id in story.smoke_tested:
        parts.append("of the smoke test, not used")
    if candidate.parent_id is not None:
        made = "refines" if candidate.kind == "refinement" else "chosen from"
        parts.append(f"{made} {short_id(candidate.parent_id)}")
    if candidate.critique_id is not None:
        parts.append(f"after critique {short_id(candidate.critique_id)}")
    rewards = [r for r in story.rewards if r.candidate_id == candidate.candidate_id]
    parts += [_reward(r, named=len(rewards) > 1) for r in rewards]
    if candidate.finish_reason != "stop":
        parts.append(f"ended by {candidate.finish_reason}")
    made = {checkpoint.checkpoint_id: checkpoint.name for checkpoint in story.checkpoints}
    return ", ".join([*parts, f"by {made.get(candidate.policy, candidate.model)}"])


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


def _of_critique(critique: Critique) -> Remark:
    person = f" by {critique.critic}" if critique.critic.startswith(HUMAN) else ""
    head = f"{short_id(critique.critique_id)}{person}{_at(critique.judged_at) if person else ''}"
    if critique.status != SCORED:
        return Remark(head=f"{head}: unscored: {critique.status}", text=critique.text)
    return Remark(head=head, ratings=critique.aspects, text=_comment(critique))


def _at(time: str | None) -> str:
    return "" if time is None else f" at {time}"


def _comment(critique: Critique) -> str:
    """Return a critique's text without the dictionary at its end, which repeats its ratings."""
    head, brace, last = critique.text.rstrip().rpartition("{")
    try:
        tail = json.loads(brace + last) if brace else None
    except ValueError:
        tail = None
    rated = {aspect.name: aspect.rating for aspect in critique.aspects}
    return head.rstrip() if tail == rated else critique.text


def _grades_of(story: Story, candidate: Candidate) -> list[Grade]:
    """Return the grades of a candidate, in the order of the aspects; scores by forms come last."""
    mine = [grade for grade in story.grades if grade.candidate_id == candidate.candidate_id]
    return sorted(mine, key=lambda grade: _PLACES.get(grade.aspect, len(_PLACES)))


def _of_grade(grade: Grade) -> Remark:
    types = f", types {', '.join(grade.types)}" if grade.types else ""
    reasons = filter(None, (grade.type_rationale, grade.rationale))
    return Remark(head=f"{grade.grade_id}: {rated_as(grade)}{types}", text="\n".join(reasons))


def _of_breakdown(row: Breakdown) -> Remark:
    what = f"passage {row.place + 1} not broken up" if row.passage else "no statements"
    return Remark(head=f"? {what}: {row.status}")


def _of_claim(claim: Claim) -> Remark:
    text = claim.status if claim.verdict is None else claim.verdict.replace("_", " ")
    why = f" ({claim.reason})" if claim.reason else ""
    return Remark(head=f"{SIGNS[claim.verdict]} {claim.statement} {text}{why}")


def _roles(story: Story, candidate_id: str) -> Iterator[tuple[str, str]]:
    """Yield the id of each row that a candidate is part of, and its role there with the reason."""
    tables = [("", story), *((f"derived table {table.name}: ", table) for table in story.derived)]
    for where, table in tables:
        for row in (*table.pairs, *table.demonstrations, *table.unpaired_answers):
            identity, role = _role(story, candidate_id, row)
            if role:
                yield identity, where + role
    for row in story.preferences:
        if candidate_id in (row.first_id, row.second_id):
            yield row.preference_id, _verdict(candidate_id, row)


def _role(
    story: Story, candidate_id: str, row: Pair | Demonstration | UnpairedAnswer
) -> tuple[str, str]:
    """Return the id of a row to train on, and a candidate's role there; empty if it has none."""
    if isinstance(row, Pair):
        if candidate_id == row.chosen_id:
            return row.pair_id, f"chosen of pair {row.pair_id}: {why_pair(story, row)}"
        is_rejected = candidate_id == row.rejected_id
        against = f"rejected of pair {row.pair_id} against {row.chosen_id}"
        return row.pair_id, against if is_rejected else ""
    if isinstance(row, Demonstration):
        identity = row.demonstration_id
        role = f"demonstration {identity}: {why_demonstration(story, row)}"
    else:
        identity = row.unpaired_id
        role = f"unpaired answer {identity}: {why_unpaired(story, row)}"
    return identity, role if candidate_id == row.candidate_id else ""


def _verdict(candidate_id: str, row: Preference) -> str:
    """Return the verdict of a preference on a candidate."""
    is_first = candidate_id == row.first_id
    if row.preferred is None:
        verdict = f"no verdict ({row.status}) remarks"
    elif row.preferred == "tie":
        verdict = "as good as"
    else:
        verdict = "preferred to" if is_first == (row.preferred == "first") else "less liked than"
    named = f"preference {row.preference_id} of {row.annotator}{_at(row.judged_at)}"
    return f"{named}: {verdict} {row.second_id if is_first else row.first_id}"


def _measured_lines(story: Story, candidate_id: str) -> list[str]:
    """Return the evaluation's numbers on a greedy answer."""
    numbers = [
        f"{score.metric} {score.value:g}"
        for score in story.scores
        if score.candidate_id == candidate_id and not score.metric.startswith("rating:")
    ]
    return [f"measured: {', '.join(numbers)}"] if numbers else []
