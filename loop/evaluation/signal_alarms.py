"""Alarms: a run's judgements carry no signal, its texts are copies, or its policy moved far."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from ...stores.records import Alarm
from ..lake.statistics.sign_flips import chance_of_rise
from ..stages.step_alarms import MOST_KL
from .observed import (
    CRITIC,
    ERROR_RATE,
    Observation,
    ObservedLessons,
    ObservedPair,
    ObservedPolicy,
    Shift,
    percent,
)

SATURATION, COPIES, SAME_CHOSEN, DIVERGENCE = "saturation", "copies", "same chosen", "kl"
SATURATED = 0.99
"""The share of best ratings from which an aspect counts as saturated."""
MOST_COPIES = 0.2
"""The largest increase of the share of answers that equal the answer to another prompt."""
MOST_SAME_CHOSEN = 0.5
"""Of the prompts with several pairs, the share whose pairs may all have the same chosen text."""
FEWEST_RATINGS = 50
"""Ratings of an aspect, or prompts with rewards, below which they are not called saturated."""
UNTRUE = 0.9
"""A family that is approved as a whole is an alarm if fewer of its answers than this are right."""


def signal_alarms(seen: Observation) -> Iterator[Alarm]:
    """Yield the alarms that are new since the iteration before."""
    yield from _saturated_ratings(seen)
    yield from _saturated_families(seen)
    yield from _saturated_rewards(seen)
    yield from _copies(seen)
    yield from _same_chosen(seen)
    yield from _divergence(seen)


def _saturated_ratings(seen: Observation) -> Iterator[Alarm]:
    limit = SATURATED
    for aspect, (share, n) in seen.lessons.best.items():
        before, of = (0.0, 0) if seen.earlier is None else seen.earlier.best.get(aspect, (0.0, 0))
        if share < limit or n < FEWEST_RATINGS or (before >= limit and of >= FEWEST_RATINGS):
            continue
        yield seen.alarm(
            SATURATION,
            f"{aspect}: {percent(share)} of the ratings are 1 ({n:,} candidates), no signal",
            Shift(before if of else None, share, limit),
            name=aspect,
        )


def _saturated_families(seen: Observation) -> Iterator[Alarm]:
    """Yield alarms on families whose answers are all approved although many are wrong."""
    families = dict[str, list[str]]()
    for prompt in seen.prompts.values():
        if prompt.family is not None:
            families.setdefault(prompt.family, []).append(prompt.prompt_id)
    for family, prompts in families.items():
        found = _approved_and_right(seen.policy, prompts)
        approved, right, n = found
        if n < seen.fewest or approved < SATURATED or right >= UNTRUE:
            continue
        was = _approved_and_right(seen.before[-1], prompts)
        told_before = was[0] >= SATURATED and was[1] < UNTRUE
        if told_before and seen.before[-1] is not seen.initial:
            continue
        answers = seen.policy.answers
        yield seen.alarm(
            SATURATION,
            f"family {family}: the critic approves {percent(approved)} of {n} answers, "
            f"{percent(right)} are right",
            Shift(was[0], approved, SATURATED),
            scope="family",
            name=family,
            examples=[answers[p].candidate_id for p in prompts if answers[p].right is False],
        )


def _approved_and_right(policy: ObservedPolicy, prompts: Sequence[str]) -> tuple[float, float, int]:
    """Return the shares approved by the critic and right, and of how many answers."""
    both = [
        (answer.approval[CRITIC], float(answer.right))
        for prompt in prompts
        if (answer := policy.answers.get(prompt)) is not None
        and answer.right is not None
        and CRITIC in answer.approval
    ]
    if not both:
        return 0.0, 0.0, 0
    return fmean(a for a, _ in both), fmean(r for _, r in both), len(both)


def _saturated_rewards(seen: Observation) -> Iterator[Alarm]:
    limit = SATURATED
    if seen.lessons.equal_rewards is None:
        return
    share, n = seen.lessons.equal_rewards
    before = None if seen.earlier is None else seen.earlier.equal_rewards
    told_before = before is not None and before[0] >= limit
    if share >= limit and n >= FEWEST_RATINGS and not told_before:
        yield seen.alarm(
            SATURATION,
            f"{percent(share)} of {n:,} prompts have candidates with equal rewards, no signal",
            Shift(None if before is None else before[0], share, limit),
            name="reward",
        )


def _copies(seen: Observation) -> Iterator[Alarm]:
    """Yield an alarm if many more answers equal the answer to another prompt."""
    shared = [p for p in seen.policy.answers if p in seen.initial.answers]
    if len(shared) < seen.fewest:
        return
    before, after = (_copied(of, shared) for of in (seen.initial, seen.policy))
    grown = [float(after[p]) - float(before[p]) for p in shared]
    if fmean(grown) <= MOST_COPIES or chance_of_rise(grown) >= ERROR_RATE:
        return
    was, now = (fmean(map(float, of.values())) for of in (before, after))
    yield seen.alarm(
        COPIES,
        f"{percent(now)} of {seen.name}'s answers equal its answer to another prompt "
        f"(M_{seen.initial.iteration}: {percent(was)})",
        Shift(was, now, MOST_COPIES),
        name="answers",
        examples=[seen.policy.answers[p].candidate_id for p in shared if after[p]],
    )


def _copied(policy: ObservedPolicy, prompts: Sequence[str]) -> dict[str, bool]:
    texts = {p: " ".join(policy.answers[p].text.split()) for p in prompts}
    times = Counter(texts.values())
    return {prompt: times[text] > 1 for prompt, text in texts.items()}


def _same_chosen(seen: Observation) -> Iterator[Alarm]:
    """Yield an alarm if of most prompts with several pairs all have the same chosen text."""
    share, n, examples = _alike(seen.lessons)
    before = 0.0 if seen.earlier is None else _alike(seen.earlier)[0]
    limit = MOST_SAME_CHOSEN
    if n < seen.fewest or not before <= limit < share:
        return
    yield seen.alarm(
        SAME_CHOSEN,
        f"{percent(share)} of {n:,} prompts with several pairs have one chosen answer in all",
        Shift(None if seen.earlier is None else before, share, limit),
        name="pairs",
        examples=examples,
    )


def _alike(lessons: ObservedLessons) -> tuple[float, int, list[str]]:
    """Return the share of prompts with several pairs and one chosen text, their number, pairs."""
    by_prompt = dict[str, list[ObservedPair]]()
    for pair in lessons.pairs:
        by_prompt.setdefault(pair.prompt_id, []).append(pair)
    several = [pairs for pairs in by_prompt.values() if len(pairs) > 1]
    alike = [pairs[0].row_id for pairs in several if len({p.chosen.strip() for p in pairs}) == 1]
    return len(alike) / len(several) if several else 0.0, len(several), alike


def _divergence(seen: Observation) -> Iterator[Alarm]:
    kl, limit = seen.policy.kl, MOST_KL
    before = None if seen.before[-1] is seen.initial else seen.before[-1].kl
    if kl is None or kl <= limit or (before is not None and before > limit):
        return
    yield seen.alarm(
        DIVERGENCE,
        f"the KL of {seen.name} to M_{seen.initial.iteration} is {kl:.2f} nats a token "
        f"(limit {limit:g})",
        Shift(before, kl, limit),
        name=DIVERGENCE,
    )
