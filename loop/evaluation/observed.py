"""The input of a run's alarms: policies' answers to the same prompts, and training data.

Plain values, from a lake or from a simulation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...stores.records import Alarm, Prompt, Scope
from ..lake.statistics.clustered_bounds import cluster_sums, p_value

CRITIC, REWARD = "critic", "reward"
"""The judges: the critic approves 1 in all aspects; the reward model gives a scalar."""
FEWEST = 10
"""The fewest prompts of a family, a task or a figure for which an alarm is possible."""
ERROR_RATE = 0.05
"""The rate of false alarms about approval or style in an iteration without a change."""
LEAST_CHANGE = 0.05
"""Share of answers by which approval must rise, and verified success fall, to stop the run."""
FEWEST_CLUSTERS = 8
"""Clusters below which the prompts count themselves, and an alarm is about these alone."""
SHOWN = 5
"""The largest number of ids given as examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAnswer:
    """A greedy answer. `right` is None if it is not verified.

    `approval` has each judge's verdict on it: the critic's 1 or 0, the reward model's scalar.
    """

    candidate_id: str
    text: str
    right: bool | None = None
    approval: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPolicy:
    """M_t and its answers, by prompt; `kl` is its divergence from M_0, in nats a token."""

    iteration: int
    answers: Mapping[str, ObservedAnswer]
    kl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPair:
    """Two answers of which training prefers the first."""

    row_id: str
    prompt_id: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLessons:
    """M_t's training data: pairs, and how varied the judgements of its candidates were.

    `best` is the share of 1 among an aspect's ratings, and their number; `equal_rewards` is the
    share of prompts whose candidates all have the same reward.
    """

    pairs: Sequence[ObservedPair] = ()
    best: Mapping[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])
    equal_rewards: tuple[float, int] | None = None


class Shift(NamedTuple):
    """A number before and after, and the limit of the number or of its change."""

    before: float | None
    after: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """M_t after its training, with M_0, the policy that it was trained from, and the lessons.

    `before` holds the policies to compare with, M_0 first. Groups of fewer than `fewest` prompts
    are not looked at.
    """

    checkpoint_id: str
    policy: ObservedPolicy
    before: Sequence[ObservedPolicy]
    prompts: Mapping[str, Prompt]
    lessons: ObservedLessons
    earlier: ObservedLessons | None
    fewest: int = FEWEST

    @property
    def initial(self) -> ObservedPolicy:
        """M_0, or the first policy of the run that was evaluated."""
        return self.before[0]

    @property
    def parent(self) -> ObservedPolicy | None:
        """The policy that it was trained from, if this is not the initial one."""
        return None if self.before[-1] is self.initial else self.before[-1]

    def clusters(self, prompts: Sequence[str]) -> list[str]:
        """Return the cluster of each prompt, or each prompt as its own if clusters are too few."""
        found = [self.prompts[prompt].cluster or prompt for prompt in prompts]
        return found if len(set(found)) >= FEWEST_CLUSTERS else list(prompts)

    @property
    def name(self) -> str:
        """The policy's name."""
        return f"M_{self.policy.iteration}"

    def alarm(
        self,
        kind: str,
        message: str,
        shift: Shift,
        *,
        scope: Scope = "all",
        name: str = "",
        stops: bool = False,
        examples: Iterable[str] = (),
    ) -> Alarm:
        """Return an alarm about the policy; of the examples the first few are kept."""
        return Alarm(
            iteration=self.policy.iteration,
            checkpoint_id=self.checkpoint_id,
            kind=kind,
            scope=scope,
            name=name,
            before=shift.before,
            after=shift.after,
            limit=shift.limit,
            stops=stops,
            message=message,
            examples=tuple(list(examples)[:SHOWN]),
        )


def chance_of_rise(
    before: Sequence[float], after: Sequence[float], clusters: Sequence[str]
) -> float:
    """Return how likely so large a rise is if nothing changed; from 0.5 on, nothing has risen."""
    return p_value(cluster_sums(before, after, clusters)) if len(before) else 1.0


def percent(share: float) -> str:
    """Return a share in words."""
    return f"{100 * share:.0f} %"
