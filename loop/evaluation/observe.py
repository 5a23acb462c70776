"""The input of a run's alarms: policies' answers to the same prompts, and training data.

It is read from a run's rows, or made by a simulation. Large tables of pairs and judgements are
sampled, every n-th chunk, so that it takes seconds at any size.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from ...critics.status import MATH_UNDECIDED
from ...critics.verify import OWN
from ...stores.journal_reader import Part, Reader
from ...stores.lake import RunWriter
from ...stores.records import (
    SCORED,
    Alarm,
    Candidate,
    Checkpoint,
    Critique,
    Pair,
    Prompt,
    Reward,
    Scope,
    Score,
)
from ...stores.schemas import TABLES, R
from ...stores.side_evals import side_eval_of
from ..data.splits import is_measured_on
from ..lake.query.vocabulary import SUCCESSES
from ..lake.statistics.clustered_bounds import cluster_sums, p_value
from .assess import REWARD as REWARD_METRIC
from .assess import UNDRAWN
from .kl_divergence import KL
from .metrics import SCORING

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
SAMPLE = 4_000
"""About this many pairs, and as many judgements of each kind, are read."""
FEWEST_REWARDS = 2


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


def compared_iterations(source: RunWriter, benchmark: str, policy: Checkpoint) -> list[int]:
    """Return the iterations of the policies to compare one with: the first, then its parent."""
    evaluated = sorted(
        {
            state.iteration
            for state in source.journal.stages()
            if state.iteration < policy.iteration and _is_about(state.stage, "evaluate", benchmark)
        }
    )
    if not evaluated:
        return []
    parent = [c.iteration for c in _checkpoints(source) if c.checkpoint_id == policy.parent_id]
    return list(dict.fromkeys([evaluated[0], *(n for n in parent if n in evaluated)]))


def _checkpoints(source: RunWriter) -> Iterator[Checkpoint]:
    for part in source.journal.parts(table=TABLES[Checkpoint]):
        yield from source.rows(Checkpoint, part.unit)


def answer_units(journal: Reader, iteration: int, benchmark: str) -> list[str]:
    """Return the keys of the units with a policy's answers and their judgements."""
    verbs = ("evaluate", "critique:evaluate", *SCORING, KL, f"{KL}-sample")
    return [
        key
        for state in journal.stages()
        if state.iteration == iteration
        and any(_is_about(state.stage, verb, benchmark) for verb in verbs)
        for key in journal.keys(iteration, state.stage)
    ]


def _is_about(stage: str, verb: str, benchmark: str) -> bool:
    """Whether a stage is a verb's, about a benchmark or, of all held-out prompts, about a set."""
    about = stage.removeprefix(f"{verb}:")
    return about != stage and is_measured_on(about, benchmark)


def observe_policy(
    source: RunWriter,
    policy: Checkpoint,
    iterations: Sequence[int],
    benchmark: str,
    prompts: Mapping[str, Prompt],
) -> Observation:
    """Return the observation of a policy, compared with the policies of other iterations."""
    now = _policy(source, policy.iteration, benchmark)
    earlier = iterations[-1]
    return Observation(
        checkpoint_id=policy.checkpoint_id,
        policy=now,
        before=[_policy(source, number, benchmark) for number in iterations],
        prompts={name: prompts[name] for name in now.answers},
        lessons=_lessons(source, policy.iteration),
        earlier=_lessons(source, earlier) if earlier > iterations[0] else None,
    )


def _policy(source: RunWriter, number: int, benchmark: str) -> ObservedPolicy:
    """Read a policy's answers, without failed ones."""
    units = answer_units(source.journal, number, benchmark)
    candidates = [row for row in _of(source, Candidate, units) if row.finish_reason not in UNDRAWN]
    critiques = {row.candidate_id: row for row in _of(source, Critique, units)}
    scores = list(_of(source, Score, units))
    by_answer = dict[str, dict[str, float]]()
    for score in scores:
        by_answer.setdefault(score.candidate_id, {})[score.metric] = score.value
    own = any(score.metric == OWN for score in scores)
    greedy = [row for row in candidates if row.kind == "greedy"]
    return ObservedPolicy(
        iteration=number,
        answers={
            row.prompt_id: ObservedAnswer(
                candidate_id=row.candidate_id,
                text=row.text,
                right=_right(by_answer.get(row.candidate_id, {}), own=own),
                approval=_approval(
                    critiques.get(row.candidate_id), by_answer.get(row.candidate_id, {})
                ),
            )
            for row in greedy
        },
        kl=_kl(scores, {row.candidate_id: row.completion_tokens for row in candidates}),
    )


def _of(source: RunWriter, row_type: type[R], units: Sequence[str]) -> Iterator[R]:
    for unit in units:
        if TABLES[row_type] in source.journal.parts_of(unit):
            yield from source.rows(row_type, unit)


def _right(metrics: Mapping[str, float], *, own: bool) -> bool | None:
    """Whether an answer is right, by the user's own verifier if there is one; None if unknown."""
    if not own and metrics.get(MATH_UNDECIDED) == 1:
        return None
    names = (OWN,) if own else SUCCESSES
    found = [metrics[name] for name in names if name in metrics]
    return all(value == 1 for value in found) if found else None


def _approval(critique: Critique | None, metrics: Mapping[str, float]) -> dict[str, float]:
    found = {REWARD: metrics[REWARD_METRIC]} if REWARD_METRIC in metrics else {}
    if critique is not None and critique.status == SCORED:
        found[CRITIC] = float(critique.positive)
    return found


def _kl(scores: Sequence[Score], tokens: Mapping[str, int]) -> float | None:
    """Return the mean divergence from M_0 in nats a token, if it was measured."""
    measured = [(s.value, tokens[s.candidate_id]) for s in scores if s.metric == KL]
    length = sum(n for _, n in measured)
    return sum(value for value, _ in measured) / length if length else None


def _lessons(source: RunWriter, iteration: int) -> ObservedLessons:
    """Read the training data of an iteration's policy."""
    pairs = [
        ObservedPair(
            row_id=pair.pair_id,
            prompt_id=pair.prompt_id,
            chosen=pair.chosen[-1].content,
            rejected=pair.rejected[-1].content,
        )
        for pair in _sample_rows(source, Pair, iteration)
    ]
    ratings = dict[str, list[float]]()
    for critique in _sample_rows(source, Critique, iteration, without="evaluate"):
        for aspect in critique.aspects:
            if aspect.rating is not None:
                ratings.setdefault(aspect.name, []).append(float(aspect.rating == 1))
    return ObservedLessons(
        pairs=pairs,
        best={aspect: (fmean(ones), len(ones)) for aspect, ones in sorted(ratings.items())},
        equal_rewards=_equal_rewards(_sample_rows(source, Reward, iteration, without="evaluate")),
    )


def _equal_rewards(rewards: Iterator[Reward]) -> tuple[float, int] | None:
    by_prompt = dict[str, list[float]]()
    for row in rewards:
        if row.score is not None:
            by_prompt.setdefault(row.prompt_id, []).append(row.score)
    several = [found for found in by_prompt.values() if len(found) >= FEWEST_REWARDS]
    if not several:
        return None
    return fmean(float(len(set(found)) == 1) for found in several), len(several)


def _sample_rows(
    source: RunWriter, row_type: type[R], iteration: int, *, without: str | None = None
) -> Iterator[R]:
    """Yield the rows of an iteration's own stages, or of every n-th chunk of them."""
    parts = [
        part
        for part in source.journal.parts(table=TABLES[row_type], iteration=iteration)
        if side_eval_of(part.stage) is None and not _names(part, without)
    ]
    every = max(1, -(-sum(part.rows for part in parts) // SAMPLE))
    for part in parts:
        if part.chunk % every == 0:
            yield from source.rows(row_type, part.unit)


def _names(part: Part, word: str | None) -> bool:
    words: Collection[str] = part.stage.split(":")
    return word in words
