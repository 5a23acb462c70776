"""The cost of a run's policies, in generated tokens, and their scores.

Counted are tokens generated to train on: the policy's answers, and separately the replies of its
judges. Evaluations, the smoke test and measurements on request do not count. A policy's cost is the
sum of the units before it: of all iterations up to its own, and of a training that samples the
steps so far. Units taken over from another run cost nothing, so a run whose tokens are to be
compared must not be a fork.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...configs.recipe_names import short_name
from ...policies.trainers.job import ONLINE
from ...stores.journal_reader import Reader
from ...stores.lake import RunReader
from ...stores.records import Checkpoint
from ...stores.side_evals import measured_beside
from ..data.splits import HELD_OUT
from ..data.stage_names import is_eval_set
from ..data.step_names import step_benchmark
from ..lake.query.model_names import checkpoints, step_policies
from .compare_runs import Measure, Result, result_of
from .observed import ObservedPrompt
from .style_alarms import greedy_answers, style_drift

DRIFT = "style_drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Generated tokens of the policy and of judges, and the number of judge calls.

    `prompt_tokens` are read by both; `seconds` is the time of all these units, trainings included.
    """

    policy_tokens: int = 0
    judge_tokens: int = 0
    judge_calls: int = 0
    prompt_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: "TokenCost") -> "TokenCost":
        """Return the sum."""
        return TokenCost(
            policy_tokens=self.policy_tokens + other.policy_tokens,
            judge_tokens=self.judge_tokens + other.judge_tokens,
            judge_calls=self.judge_calls + other.judge_calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
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
    """Return the course of a run; `method` is its name if its recipe's is not specific enough.

    The style of each policy except M_0 is compared with M_0's, in the figure `style_drift`.
    """
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    name = method or short_name(str(config.get("recipe", {}).get("name", "")))
    units = list(spent_units(run.journal))
    points = list[TokenPoint]()
    for policy in _in_order([*step_policies(run), *checkpoints(run)]):
        benchmark = step_benchmark(HELD_OUT, policy.at_step)
        result = result_of(run, name, policy.iteration, benchmark)
        if result is not None:
            cost = cost_until(units, policy)
            points.append(TokenPoint(policy=policy, cost=cost, result=result))
    rows = run.scan("prompts").select("prompt_id", "task", "family").unique("prompt_id").collect()
    prompts = {p: ObservedPrompt(prompt_id=p, task=t, family=f) for p, t, f in rows.iter_rows()}
    return TokenCourse(
        run=run.folder.name,
        method=name,
        seed=int(config.get("seed", 0)),
        points=tuple(_with_drift(run, prompts, points[0], point) for point in points),
    )


def spent_units(journal: Reader) -> Iterator[SpentUnit]:
    """Give the finished units, except eval sets and measurements outside the loop."""
    states = {(state.iteration, state.stage): state for state in journal.stages()}
    for _, iteration, stage, chunk, done, _, telemetry in journal.all_units():
        if not done or is_eval_set(stage) or measured_beside(stage) is not None:
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
                prompt_tokens=int(counted.get("prompt_tokens", 0)),
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


def _in_order(policies: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return policies in the order of their making, intermediate ones before M_t.

    If M_t was chosen among them, the last one is listed by its step.
    """
    return sorted(policies, key=lambda p: (p.iteration, p.at_step is None, p.at_step or 0))


def _with_drift(
    run: RunReader, prompts: Mapping[str, ObservedPrompt], first: TokenPoint, point: TokenPoint
) -> TokenPoint:
    """Return a point with how far the style of its answers has moved from M_0's."""
    if point is first:
        return point
    answers = (greedy_answers(run, p.policy.iteration, p.result.benchmark) for p in (first, point))
    drift = style_drift(prompts, *answers)
    if drift is None:
        return point
    number = Measure(value=drift, stderr=None, n=len(point.result.scores.get("mean_length", ())))
    numbers = {**point.result.numbers, DRIFT: number}
    result = replace(
        point.result, numbers=numbers, judges={**point.result.judges, DRIFT: frozenset()}
    )
    return replace(point, result=result)
