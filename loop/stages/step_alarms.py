"""Alarms by step: checking PPO's and Quark's numbers while they train.

Problems in a long training should show early: the policy drifts away from M_0, its answers become
alike, long or truncated, or its reward falls again. Later steps are compared with the first ones;
each kind of alarm is raised once per training, when it first appears.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import NamedTuple

from ...stores.records import Alarm, Statistic
from ..run.handles import Planned
from ..run.iteration import Iteration
from ..run.run import Verb, Work

WINDOW = 5
"""Steps whose means are compared."""
MOST_KL = 0.5
"""KL to M_0, in nats a token, above which there is an alarm."""
MOST_CUT = 0.5
"""Share of answers cut off that raises an alarm, if the first steps had half of it at most."""
LEAST_ENTROPY = 0.2
"""Share of the first steps' entropy below which answers have become alike."""
MOST_LENGTH = 2.0
"""Times the first steps' length beyond which answers have grown."""
BEYOND = 4.5
"""Standard errors that a fall of the reward exceeds: 1 in 20 trainings of 390 steps falls so far by
chance, as of all its steps the best is taken."""
WATCH_STEPS = Verb("watch_steps")
STAGE = "watch:steps"
CUT, ENTROPY, LENGTH, REWARD, KL = "missing_eos", "entropy", "length", "reward", "kl"

Numbers = Mapping[str, float]
"""A step's numbers, by metric."""


class StepFinding(NamedTuple):
    """A kind of alarm that a step raises: its number then, before, and the limit, in words."""

    kind: str
    before: float
    after: float
    limit: float
    message: str


@dataclass(kw_only=True)
class StepWatch:
    """The numbers of a training's steps so far, and the kinds of alarms that they raised."""

    it: Iteration
    method: str
    steps: int
    history: list[Numbers] = field(default_factory=list[Numbers])
    _known: set[str] = field(default_factory=set[str])

    def watch(self, numbers: Numbers) -> list[Alarm]:
        """Add the next step, and return the alarms that it is the first to raise."""
        self.history.append(numbers)
        found = [f for f in findings(self.history) if f.kind not in self._known]
        self._known |= {finding.kind for finding in found}
        step = len(self.history)
        return [
            Alarm(
                iteration=self.it.number,
                checkpoint_id=self.it.policy.identity,
                kind=kind,
                scope="all",
                name=f"step {step}",
                before=before,
                after=after,
                limit=limit,
                stops=False,
                message=f"{self.method}, step {step} of {self.steps}: {message}",
                examples=(),
            )
            for kind, before, after, limit, message in found
        ]

    def watch_committed(self, keys: Iterable[str]) -> list[Alarm]:
        """Add the committed steps with these keys, and return the alarms that they raise."""
        return [alarm for key in keys for alarm in self.watch(numbers_of(self.it, key))]


def findings(history: Sequence[Numbers]) -> Iterator[StepFinding]:
    """Yield the differences between the last steps of a training and its first ones."""
    if len(history) <= WINDOW:
        return
    first, last = (_means(part) for part in (history[:WINDOW], history[-WINDOW:]))
    if KL in last and last.get(LENGTH):
        before, kl = first.get(KL, 0.0) / max(first.get(LENGTH, 0.0), 1.0), last[KL] / last[LENGTH]
        if kl > MOST_KL:
            message = f"the KL to M_0 is {kl:.2f} nats a token (limit {MOST_KL:g})"
            yield StepFinding(KL, before, kl, MOST_KL, message)
    before, cut = first.get(CUT, 0.0), last.get(CUT, 0.0)
    if cut > MOST_CUT and before <= MOST_CUT / 2:
        message = f"{cut:.0%} of the answers are cut off, {before:.0%} in the first steps"
        yield StepFinding(CUT, before, cut, MOST_CUT, message)
    for kind, limit in ((ENTROPY, LEAST_ENTROPY), (LENGTH, MOST_LENGTH)):
        before, after = first.get(kind, 0.0), last.get(kind)
        if before <= 0 or after is None:
            continue
        share = after / before
        if share > limit if kind == LENGTH else share < limit:
            message = f"the {kind} of answers is {share:.2f} times that of the first steps"
            yield StepFinding(kind, before, after, limit * before, message)
    yield from _fallen_reward([numbers[REWARD] for numbers in history if REWARD in numbers])


def _fallen_reward(rewards: Sequence[float]) -> Iterator[StepFinding]:
    if len(rewards) < 2 * WINDOW:
        return
    means = [fmean(rewards[at : at + WINDOW]) for at in range(len(rewards) - WINDOW + 1)]
    best, risen = max(means), max(means) - means[0]
    # The standard error of the difference of two means of neighbouring steps. A step's deviation is
    # estimated from its difference to the next one, so a trend counts little.
    squares = fmean((after - before) ** 2 for before, after in pairwise(rewards))
    if best - means[-1] > max(risen, BEYOND * sqrt(squares / WINDOW)):
        message = f"the reward fell from {best:.3f} to {means[-1]:.3f}, by more than it had risen"
        yield StepFinding(REWARD, best, means[-1], best - risen, message)


def _means(steps: Sequence[Numbers]) -> dict[str, float]:
    names = set[str].intersection(*(set(numbers) for numbers in steps))
    return {name: fmean(numbers[name] for numbers in steps) for name in sorted(names)}


def keep_alarms(it: Iteration, method: str, steps: Planned) -> None:
    """Commit the alarms of a training whose steps are all there, if they raised any."""
    journal, config = it.run.store.journal, it.run.config.alarms
    if not config.watch:
        return
    keys = steps.keys(journal)
    watch = StepWatch(it=it, method=method, steps=len(keys))
    alarms = watch.watch_committed(keys)
    if not alarms:
        return
    work = Work(
        verb=WATCH_STEPS,
        params={"raised": [[alarm.kind, alarm.name] for alarm in alarms]},
        upstream=(steps.identity,),
        reads=lambda: [keys],
    )
    it.run.make(it.number, STAGE, work, lambda _: {Alarm: alarms})


def numbers_of(it: Iteration, key: str) -> Numbers:
    """Return the numbers of a committed step."""
    return {row.metric: row.value for row in it.run.store.rows(Statistic, key)}
