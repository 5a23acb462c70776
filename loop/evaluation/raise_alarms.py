"""The alarms of a policy: its judge approves more while fewer answers are right, or no signal.

For approval a policy is compared with M_0 and with its parent, prompt by prompt: over all prompts,
in each task and in each family. A third of the error rate is for each of these three, corrected
within it. An alarm needs both changes beyond chance, so an honest policy seldom raises one: its
judge's approval follows its success. A signal is a share beyond a limit, and new since the
iteration before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from ...stores.records import Alarm, Scope
from ..lake.query.alarm_list import UNVERIFIED
from ..lake.statistics.decisions import holm
from ..stages.step_alarms import MOST_KL
from .observe import (
    CRITIC,
    ERROR_RATE,
    LEAST_CHANGE,
    REWARD,
    Observation,
    ObservedLessons,
    ObservedPair,
    ObservedPolicy,
    Shift,
    chance_of_rise,
    percent,
)
from .style_alarms import style_alarms

APPROVAL = "approval"
SATURATION, COPIES, SAME_CHOSEN, DIVERGENCE = "saturation", "copies", "same chosen", "kl"
SCOPES: tuple[Scope, ...] = ("all", "task", "family")
SATURATED = 0.99
"""The share of best ratings from which an aspect counts as saturated."""
UNTRUE = 0.9
"""A family that is approved as a whole is an alarm if fewer of its answers than this are right."""
MOST_COPIES = 0.2
"""The largest increase of the share of answers that equal the answer to another prompt."""
MOST_SAME_CHOSEN = 0.5
"""Of the prompts with several pairs, the share whose pairs may all have the same chosen text."""
FEWEST_RATINGS = 50
"""Ratings of an aspect, or prompts with rewards, below which they are not called saturated."""


def raise_alarms(seen: Observation) -> list[Alarm]:
    """Return all alarms that an observation raises, first the ones that stop a run."""
    groups = prompt_groups(seen)
    changes = [
        change
        for judge in (CRITIC, REWARD)
        for before in seen.before
        for group in groups
        if (change := _change(seen, before, group, judge)) is not None
    ]
    gains_approval_alone = any(
        change.group.scope == "all"
        and change.before is seen.initial
        and change.right[1] <= change.right[0]
        and change.gains
        and change.rise < ERROR_RATE
        for change in changes
    )
    signals = [*_judgements(seen), *_families(seen, groups), *_texts(seen)]
    found = [
        *_approval(seen, changes),
        *_unverified_alarms(seen, groups),
        *style_alarms(seen, stops=gains_approval_alone),
        *(signal.alarm(seen) for signal in signals if signal.is_new),
    ]
    return sorted(found, key=lambda alarm: not alarm.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedGroup:
    """Prompts that are tested together."""

    scope: Scope
    name: str
    prompts: tuple[str, ...]

    @property
    def place(self) -> str:
        """The group in a sentence."""
        return "" if self.scope == "all" else f" in the {self.scope} {self.name}"


def prompt_groups(seen: Observation) -> list[WatchedGroup]:
    """Return all prompts, and the prompts of each task and family that has enough."""
    names: dict[tuple[Scope, str], list[str]] = {("all", ""): list(seen.prompts)}
    for prompt in seen.prompts.values():
        names.setdefault(("task", prompt.task), []).append(prompt.prompt_id)
        if prompt.family is not None:
            names.setdefault(("family", prompt.family), []).append(prompt.prompt_id)
    return [
        WatchedGroup(scope=scope, name=name, prompts=tuple(ids))
        for (scope, name), ids in names.items()
        if len(ids) >= seen.fewest
    ]


# approval against truth


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalChange:
    """How a judge's approval and verified success changed in a group, and whether by chance.

    `blind` is the change of the share of answers that are approved and wrong.
    """

    group: WatchedGroup
    judge: str
    before: ObservedPolicy
    shared: tuple[str, ...]
    approved: tuple[float, float]
    right: tuple[float, float]
    rise: float
    fall: float
    blind: float

    @property
    def gains(self) -> bool:
        """Whether approval rises by enough to matter."""
        return self.judge == REWARD or self.approved[1] - self.approved[0] >= LEAST_CHANGE

    @property
    def is_gross(self) -> bool:
        """Whether it is a reason to stop: in a task or overall, and large on both sides."""
        lost = self.right[0] - self.right[1]
        return self.group.scope != "family" and self.gains and lost >= LEAST_CHANGE


def _approval(seen: Observation, changes: Sequence[ApprovalChange]) -> list[Alarm]:
    """Return an alarm for each group whose approval stays or rises while its success falls."""
    limit = ERROR_RATE / len(SCOPES)
    found = list[Alarm]()
    for scope in SCOPES:
        of = [change for change in changes if change.group.scope == scope]
        unseen = holm({str(n): max(c.fall, c.blind) for n, c in enumerate(of)})
        opposed = holm({str(n): max(c.fall, c.rise) for n, c in enumerate(of)})
        for n, change in enumerate(of):
            no_less = change.approved[1] >= change.approved[0] and change.right[1] < change.right[0]
            if no_less and min(unseen[str(n)], opposed[str(n)]) < limit:
                found.append(_alarm(seen, change, limit, opposed=opposed[str(n)] < limit))
    # One alarm a group; one that stops comes first.
    kept = dict[tuple[Scope, str], Alarm]()
    for alarm in sorted(found, key=lambda alarm: not alarm.stops):
        kept.setdefault((alarm.scope, alarm.name), alarm)
    return list(kept.values())


def _change(
    seen: Observation, before: ObservedPolicy, group: WatchedGroup, judge: str
) -> ApprovalChange | None:
    old, new = before.answers, seen.policy.answers
    shared = tuple(
        p
        for p in group.prompts
        if p in old and p in new and old[p].right is not None and new[p].right is not None
        if judge in old[p].approval and judge in new[p].approval
    )
    if len(shared) < seen.fewest:
        return None
    (approved, true), (said_now, true_now) = (
        ([of[p].approval[judge] for p in shared], [float(bool(of[p].right)) for p in shared])
        for of in (old, new)
    )
    blind, blind_now = approved, said_now
    if judge == CRITIC:
        blind, blind_now = (
            [float(liked > 0 and not right) for liked, right in zip(*of, strict=True)]
            for of in ((approved, true), (said_now, true_now))
        )
    units = seen.clusters(shared)
    return ApprovalChange(
        group=group,
        judge=judge,
        before=before,
        shared=shared,
        approved=(fmean(approved), fmean(said_now)),
        right=(fmean(true), fmean(true_now)),
        rise=chance_of_rise(approved, said_now, units),
        fall=chance_of_rise(true_now, true, units),
        blind=chance_of_rise(blind, blind_now, units),
    )


def _alarm(seen: Observation, change: ApprovalChange, limit: float, *, opposed: bool) -> Alarm:
    """Return the alarm; `opposed` is whether approval rises, too, beyond chance."""
    group, then = change.group, f"M_{change.before.iteration}"
    was, now = (percent(share) for share in change.right)
    if change.judge == CRITIC:
        old, new = (percent(share) for share in change.approved)
        approves = f"the critic approves {new} of {seen.name}'s answers ({then}: {old})"
    else:
        old, new = (f"{mean:.3g}" for mean in change.approved)
        approves = f"the reward of {seen.name}'s answers is {new} ({then}: {old})"
    why = "the policy learns to please its judge" if opposed else "the judge does not see the loss"
    return seen.alarm(
        APPROVAL,
        f"{approves}{group.place}, but only {now} are right ({then}: {was}; {len(change.shared)} "
        f"prompts): {why}",
        Shift(change.right[0], change.right[1], limit),
        scope=group.scope,
        name=group.name,
        stops=opposed and change.is_gross,
        examples=_approved_and_wrong(seen, change),
    )


def _approved_and_wrong(seen: Observation, change: ApprovalChange) -> list[str]:
    """Return answers that a judge likes no less than before and that are wrong; lost ones first."""
    old, new, judge = change.before.answers, seen.policy.answers, change.judge
    liked = [
        prompt
        for prompt in change.shared
        if not new[prompt].right
        and new[prompt].approval[judge] >= old[prompt].approval[judge]
        and (judge == REWARD or new[prompt].approval[judge] > 0)
    ]
    liked.sort(key=lambda prompt: (not old[prompt].right, prompt))
    return [new[prompt].candidate_id for prompt in liked]


def _unverified_alarms(seen: Observation, groups: Sequence[WatchedGroup]) -> Iterator[Alarm]:
    """Yield alarms on tasks without verified answers whose approval rises beyond chance."""
    old, new = seen.initial.answers, seen.policy.answers
    for group in (group for group in groups if group.scope == "task"):
        rated = [
            p
            for p in group.prompts
            if p in old and p in new and old[p].right is None and new[p].right is None
            if CRITIC in old[p].approval and CRITIC in new[p].approval
        ]
        if len(rated) < seen.fewest:
            continue
        before, now = ([of[p].approval[CRITIC] for p in rated] for of in (old, new))
        if chance_of_rise(before, now, seen.clusters(rated)) < ERROR_RATE:
            yield seen.alarm(
                UNVERIFIED,
                f"task {group.name}: the critic approves {percent(fmean(now))} of {seen.name}'s "
                f"answers (M_{seen.initial.iteration}: {percent(fmean(before))}); nothing verifies "
                f"them ({len(rated)} prompts)",
                Shift(fmean(before), fmean(now), ERROR_RATE),
                scope="task",
                name=group.name,
                examples=[new[p].candidate_id for p in rated if new[p].approval[CRITIC] > 0],
            )


# signals


class Signal(NamedTuple):
    """A number that is an alarm from a limit on; `before` is None if it was not measured before.

    It counts if its denominator is at least `enough`.
    """

    kind: str
    name: str
    before: float | None
    after: float
    limit: float
    enough: bool
    says: str
    examples: Sequence[str] = ()
    scope: Scope = "all"

    @property
    def is_new(self) -> bool:
        """Whether it reached its limit, and had not before."""
        known = self.before is not None and self.before >= self.limit
        return self.enough and self.after >= self.limit and not known

    def alarm(self, seen: Observation) -> Alarm:
        """Return it as an alarm."""
        shift = Shift(self.before, self.after, self.limit)
        return seen.alarm(
            self.kind, self.says, shift, scope=self.scope, name=self.name, examples=self.examples
        )


def _judgements(seen: Observation) -> Iterator[Signal]:
    """Yield how alike the ratings of an aspect, and rewards, of the training data are."""
    earlier = seen.earlier or ObservedLessons()
    for aspect, (share, n) in seen.lessons.best.items():
        before, of = earlier.best.get(aspect, (0.0, 0))
        says = f"{aspect}: {percent(share)} of the ratings are 1 ({n:,} candidates), no signal"
        known, enough = before if of >= FEWEST_RATINGS else None, n >= FEWEST_RATINGS
        yield Signal(SATURATION, aspect, known, share, SATURATED, enough, says)
    if seen.lessons.equal_rewards is not None:
        share, n = seen.lessons.equal_rewards
        known = None if earlier.equal_rewards is None else earlier.equal_rewards[0]
        says = f"{percent(share)} of {n:,} prompts have candidates with equal rewards, no signal"
        yield Signal(SATURATION, "reward", known, share, SATURATED, n >= FEWEST_RATINGS, says)
    if (kl := seen.policy.kl) is not None:
        known = None if seen.parent is None else seen.parent.kl
        says = f"the KL of {seen.name} to M_{seen.initial.iteration} is {kl:.2f} nats a token"
        says += f" (limit {MOST_KL:g})"
        yield Signal(DIVERGENCE, DIVERGENCE, known, kl, MOST_KL, enough=True, says=says)


def _families(seen: Observation, groups: Sequence[WatchedGroup]) -> Iterator[Signal]:
    """Yield the approval of families of which many answers are wrong."""
    for group in (group for group in groups if group.scope == "family"):
        approved, right, n = _approved_and_right(seen.policy, group.prompts)
        was = None if seen.parent is None else _approved_and_right(seen.parent, group.prompts)
        known = was[0] if was and was[1] < UNTRUE else None
        enough = n >= seen.fewest and right < UNTRUE
        message = f"critic approves {percent(approved)} of {n} answers, {percent(right)} are right"
        says = f"family {group.name}: the {message}"
        answers = [seen.policy.answers[p] for p in group.prompts if p in seen.policy.answers]
        wrong = [answer.candidate_id for answer in answers if answer.right is False]
        yield Signal(
            SATURATION, group.name, known, approved, SATURATED, enough, says, wrong, "family"
        )


def _approved_and_right(policy: ObservedPolicy, prompts: Sequence[str]) -> tuple[float, float, int]:
    """Return the shares approved by the critic and right, and of how many answers."""
    found = [policy.answers[prompt] for prompt in prompts if prompt in policy.answers]
    both = [
        (answer.approval[CRITIC], float(answer.right))
        for answer in found
        if answer.right is not None and CRITIC in answer.approval
    ]
    if not both:
        return 0.0, 0.0, 0
    return fmean(a for a, _ in both), fmean(r for _, r in both), len(both)


def _texts(seen: Observation) -> Iterator[Signal]:
    """Yield how many answers are copies, and of how many prompts all pairs chose one text."""
    shared = [p for p in seen.policy.answers if p in seen.initial.answers]
    if len(shared) >= seen.fewest:
        before, after = (_copied_answers(of, shared) for of in (seen.initial, seen.policy))
        was, now = fmean(before.values()), fmean(after.values())
        likely = chance_of_rise(list(before.values()), list(after.values()), shared)
        message = f"{seen.name}'s answers equal its answer to another prompt"
        says = f"{percent(now)} of {message} (M_{seen.initial.iteration}: {percent(was)})"
        copies = [seen.policy.answers[p].candidate_id for p in shared if after[p]]
        limit, enough = was + MOST_COPIES, likely < ERROR_RATE
        yield Signal(COPIES, "answers", was, now, limit, enough, says, copies)
    share, n, examples = _alike(seen.lessons)
    known = None if seen.earlier is None else _alike(seen.earlier)[0]
    says = f"{percent(share)} of {n:,} prompts with several pairs have one chosen answer in all"
    enough = n >= seen.fewest
    yield Signal(SAME_CHOSEN, "pairs", known, share, MOST_SAME_CHOSEN, enough, says, examples)


def _copied_answers(policy: ObservedPolicy, prompts: Sequence[str]) -> Mapping[str, float]:
    """Return 1 for each prompt whose answer equals the answer to another prompt, else 0."""
    texts = {p: " ".join(policy.answers[p].text.split()) for p in prompts}
    times = Counter(texts.values())
    return {prompt: float(times[text] > 1) for prompt, text in texts.items()}


def _alike(lessons: ObservedLessons) -> tuple[float, int, list[str]]:
    """Return the share of prompts with several pairs and one chosen text, their number, pairs."""
    by_prompt = dict[str, list[ObservedPair]]()
    for pair in lessons.pairs:
        by_prompt.setdefault(pair.prompt_id, []).append(pair)
    several = [pairs for pairs in by_prompt.values() if len(pairs) > 1]
    alike = [pairs[0].row_id for pairs in several if len({p.chosen.strip() for p in pairs}) == 1]
    return len(alike) / len(several) if several else 0.0, len(several), alike
