"""The cost of a run's policies, in generated tokens, and their scores.

Counted are tokens generated to train on: the policy's answers, and separately the replies of its
judges. Evaluations, the smoke test and measurements on request do not count. A policy's cost is the
sum of the units before it: of all iterations up to its own, and of a training that samples the
steps so far. Units taken over from another run cost nothing, so a run whose tokens are to be
compared must not be a fork.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ...configs.recipe_names import short_name
from ...policies.trainers.job import ONLINE
from ...stores.journal_reader import Reader
from ...stores.lake import RunReader
from ...stores.records import Checkpoint
from ...stores.side_evals import side_eval_of
from ..data.splits import HELD_OUT
from ..data.stage_names import is_eval_set, step_benchmark
from ..lake.query.model_names import checkpoints, step_policies
from .compare_runs import Result, result_of

Counted = Literal["policy", "all"]
"""Which tokens count: the policy's, or the policy's and its judges'."""
Curve = Sequence[tuple[float, float]]
"""Tokens and score of each measured policy, M_0 first at 0 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Generated tokens of the policy and of judges, and the number of judge calls.

    `seconds` is the time of all these units, trainings included.
    """

    policy_tokens: int = 0
    judge_tokens: int = 0
    judge_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: "TokenCost") -> "TokenCost":
        """Return the sum."""
        return TokenCost(
            policy_tokens=self.policy_tokens + other.policy_tokens,
            judge_tokens=self.judge_tokens + other.judge_tokens,
            judge_calls=self.judge_calls + other.judge_calls,
            seconds=self.seconds + other.seconds,
        )

    @property
    def tokens(self) -> int:
        """The tokens of both."""
        return self.policy_tokens + self.judge_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPoint:
    """A measured policy: its cost, and its result on held-out prompts."""

    policy: Checkpoint
    cost: TokenCost
    result: Result

    def score(self, metric: str) -> float | None:
        """Return the mean of a metric over the prompts; None if it was not measured."""
        measure = self.result.numbers.get(metric)
        return None if measure is None else measure.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCourse:
    """The measured policies of a run in the order in which they were made, M_0 first."""

    run: str
    method: str
    seed: int
    points: tuple[TokenPoint, ...]

    def within(self, budget: int) -> "TokenCourse":
        """Return the course up to the last policy within a budget of tokens; M_0 at least."""
        kept = (p for p in self.points[1:] if p.cost.policy_tokens <= budget)
        return replace(self, points=(self.points[0], *kept))

    def curve(self, metric: str, *, of: Counted) -> Curve:
        """Return the tokens and the score of each policy that was measured."""
        return [
            (float(point.cost.policy_tokens if of == "policy" else point.cost.tokens), score)
            for point in self.points
            if (score := point.score(metric)) is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentUnit:
    """A unit that made something to train on: its place in the run, and its cost.

    `step` is the step of a training that samples, None for any other unit.
    """

    iteration: int
    stage: str
    step: int | None
    cost: TokenCost


def token_course(run: RunReader, method: str | None = None) -> TokenCourse:
    """Return the course of a run; `method` is its name if its recipe's is not specific enough."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    name = method or short_name(str(config.get("recipe", {}).get("name", "")))
    units = list(spent_units(run.journal))
    points = list[TokenPoint]()
    policies = [*step_policies(run), *checkpoints(run)]
    # In the order of their making: intermediate policies come before M_t.
    for policy in sorted(policies, key=lambda p: (p.iteration, p.at_step is None, p.at_step or 0)):
        benchmark = step_benchmark(HELD_OUT, policy.at_step)
        result = result_of(run, name, policy.iteration, benchmark)
        if result is not None:
            cost = cost_until(units, policy)
            points.append(TokenPoint(policy=policy, cost=cost, result=result))
    return TokenCourse(
        run=run.folder.name,
        method=name,
        seed=int(config.get("seed", 0)),
        points=tuple(points),
    )


def spent_units(journal: Reader) -> Iterator[SpentUnit]:
    """Give the finished units, except eval sets and measurements outside the loop."""
    states = {(state.iteration, state.stage): state for state in journal.stages()}
    for _, iteration, stage, chunk, done, _, telemetry in journal.all_units():
        if not done or is_eval_set(stage) or side_eval_of(stage) is not None:
            continue
        counted = cast("dict[str, float]", json.loads(telemetry or "{}"))
        state = states[iteration, stage]
        tokens, calls = int(counted.get("tokens", 0)), int(counted.get("judge_calls", 0))
        judged = int(counted.get("judge_tokens", tokens if calls else 0))
        yield SpentUnit(
            iteration=iteration,
            stage=stage,
            step=chunk + 1 if stage in ONLINE else None,
            cost=TokenCost(
                policy_tokens=tokens - judged,
                judge_tokens=judged,
                judge_calls=calls,
                seconds=state.seconds / max(1, state.done),
            ),
        )


def cost_until(units: Sequence[SpentUnit], policy: Checkpoint) -> TokenCost:
    """Return the cost of everything before a policy; M_0 was free."""
    if policy.iteration == 0:
        return TokenCost()
    return sum((unit.cost for unit in units if _is_before(unit, policy)), TokenCost())


def _is_before(unit: SpentUnit, policy: Checkpoint) -> bool:
    if unit.iteration != policy.iteration:
        return unit.iteration < policy.iteration
    return unit.step is None or policy.at_step is None or unit.step <= policy.at_step
