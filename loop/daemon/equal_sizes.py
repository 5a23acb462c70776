"""How long a run may be within a budget of generated tokens: its steps, or its prompts a round.

A method that samples while it trains makes steps, in one iteration; any other takes prompts, in a
few iterations. What a unit costs is not known before the first run: then it is what the plan says
that it may cost at most. What a trial measured sizes the runs that are compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from ...configs.grouped_recipes import GRPO, RLOO, OnlineDPO
from ...configs.load import Override
from ...configs.recipes import PPO, ChatGLMPPO, Quark, Recipe, UltraFeedbackPPO
from ...configs.schema import ConfigError, RunConfig
from ...stores.beside import measured_beside
from ...stores.lake import RunReader
from ...stores.records import Prompt
from ..data.stage_names import is_exam
from ..evaluation.token_course import SpentUnit, TokenBudget, spent_units
from ..stages.people_labels import labels_of
from .plan import PlannedStage, plan_of
from .rehearsal import rehearse

SOURCE = "--policy-tokens"
TRIAL_SHARE = 0.4
"""The share of the budget that a trial may take, if every answer is as long as it may be."""
TRIAL_ITERATIONS = 2
"""So many iterations a trial has: what the second costs tells what later ones will."""
ITERATIONS = 4
"""So many iterations a compared run has that takes prompts, if these suffice."""
POINTS = 8
"""So many policies a compared run publishes that makes steps: one of the last is in the budget."""
FILLED = 0.94
"""The share of the budget that is aimed at: what is made beyond it does not count, and answers may
grow as a policy learns."""
PLANNED_PROMPTS, PLANNED_STEPS = 64, 2
STEPPED: Mapping[tuple[type[Recipe], ...], str] = {
    (PPO, UltraFeedbackPPO, ChatGLMPPO): "ppo",
    (Quark,): "quark",
    (GRPO,): "grpo",
    (RLOO,): "rloo",
    (OnlineDPO,): "online_dpo",
}
"""The recipes whose training samples, by its method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """Generated tokens: what is spent once, and for each prompt or step; `judge` of judges alone.

    `later` counts for each prompt of the iterations after the first, or for each later step.
    """

    once: tuple[float, float]
    each: tuple[float, float]
    later: tuple[float, float]

    @property
    def is_judged(self) -> bool:
        """Whether judges generate any."""
        return bool(self.once[1] or self.each[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """How long a run is: steps of an online `method`, or iterations of so many prompts."""

    method: str = ""
    steps: int = 0
    iterations: int = 1
    prompts: int = 0

    def __str__(self) -> str:
        if self.method:
            return f"{self.steps} steps"
        return f"{self.iterations} iterations of {self.prompts} prompts"

    def overrides(self, *, points: int = 0) -> list[Override]:
        """Return the settings of such a run; `points` policies are examined on the way, if any."""
        named: dict[str, object] = {"iterations": self.iterations}
        if self.method:
            training, every = f"training.{self.method}", max(1, self.steps // max(1, points))
            examined = points > 0 and every < self.steps
            named |= {
                f"{training}.max_steps": self.steps,
                f"{training}.publish_every": every if examined else 0,
                f"{training}.held_out_each": examined,
                f"{training}.choose": "last",
            }
        else:
            named["prompts.per_iteration"] = self.prompts
        return [Override(source=SOURCE, path=path, value=value) for path, value in named.items()]


def stepped_method(config: RunConfig) -> str:
    """Return the method that samples while it trains in a run; nothing if none does."""
    return next((m for kinds, m in STEPPED.items() if isinstance(config.recipe, kinds)), "")


def planning_size(config: RunConfig) -> RunSize:
    """Return the size of a run that is planned only to see what its units may cost."""
    method = stepped_method(config)
    if method:
        return RunSize(method=method, steps=PLANNED_STEPS)
    return RunSize(iterations=1, prompts=PLANNED_PROMPTS)


def planned_cost(
    config: RunConfig, prompts: Sequence[Prompt], lake: Path, size: RunSize
) -> UnitCost:
    """Return what a unit may cost at most; `config` has the `planning_size`.

    Raises:
        ConfigError: if the run would be refused.
        RehearsalError: if its recipe fails.
    """
    plan = plan_of(rehearse(config, prompts, labels=labels_of(config, lake)), prompts)
    stages = [s for s in plan.stages if not is_exam(s.stage) and measured_beside(s.stage) is None]
    if size.method:
        settings: Any = getattr(config.training, size.method)
        own = size.steps * settings.rollouts * config.policy.sampling.max_tokens
        once = _planned(stage for stage in stages if stage.stage != size.method)
        # A step's answers may be judged in the step itself.
        every = sum(_planned(stage for stage in stages if stage.stage == size.method))
        each = _over((min(every, own), max(0.0, every - own)), size.steps)
        return UnitCost(once=once, each=each, later=each)
    count = sum(prompt.split == "train" for prompt in prompts)
    each = _over(_planned(stages), max(1, min(size.prompts, count)))
    return UnitCost(once=(0.0, 0.0), each=each, later=each)


def measured_cost(run: RunReader, size: RunSize) -> UnitCost:
    """Return what a unit of a run did cost; of steps, the later half tells what more would."""
    units = list(spent_units(run.journal))
    if size.method:
        steps = [unit for unit in units if unit.step is not None]
        half = [unit for unit in steps if (unit.step or 0) > len(steps) // 2]
        return UnitCost(
            once=_spent(unit for unit in units if unit.step is None),
            each=_over(_spent(steps), max(1, len(steps))),
            later=_over(_spent(half), max(1, len(half))),
        )
    last = max((unit.iteration for unit in units), default=1)
    first = _over(_spent(unit for unit in units if unit.iteration <= 1), size.prompts)
    later = _over(_spent(unit for unit in units if unit.iteration == last), size.prompts)
    return UnitCost(once=(0.0, 0.0), each=first, later=later)


def trial_size(cost: UnitCost, budget: TokenBudget, method: str, trained: int) -> RunSize:
    """Return the size of a trial; `trained` are the prompts to train on. Zero if nothing fits."""
    each = RunSize(method=method, iterations=1 if method else TRIAL_ITERATIONS)
    units = _fitting(cost.once, cost.each, budget, TRIAL_SHARE)
    if method:
        return RunSize(method=method, steps=units)
    return RunSize(iterations=each.iterations, prompts=min(units // each.iterations, trained))


def final_size(cost: UnitCost, budget: TokenBudget, tried: RunSize, trained: int) -> RunSize:
    """Return the size of a compared run, by what a trial of this size measured. Zero likewise."""
    if tried.method:
        done = tuple(a + b * tried.steps for a, b in zip(cost.once, cost.each, strict=True))
        more = _fitting((done[0], done[1]), cost.later, budget, FILLED)
        fewer = _fitting(cost.once, cost.each, budget, FILLED)
        return RunSize(method=tried.method, steps=tried.steps + more if more else fewer)
    rounds = ITERATIONS - 1
    over = tuple(a + rounds * b for a, b in zip(cost.each, cost.later, strict=True))
    prompts = _fitting((0.0, 0.0), (over[0], over[1]), budget, FILLED)
    if prompts <= trained:
        return RunSize(iterations=ITERATIONS, prompts=prompts)
    first = tuple(each * trained for each in cost.each)
    later = tuple(each * trained for each in cost.later)
    more = _fitting((first[0], first[1]), (later[0], later[1]), budget, FILLED)
    return RunSize(iterations=1 + more, prompts=trained)


def require_room(size: RunSize, recipe: str, cost: UnitCost, budget: TokenBudget) -> None:
    """Refuse a budget that holds no unit.

    Raises:
        ConfigError: saying what it would take.
    """
    if size.steps or size.prompts:
        return
    if not sum(cost.each):
        raise ConfigError(
            f"--policy-tokens {budget.policy_tokens}: {recipe} generates nothing to learn from, as "
            "far as its plan tells, so no budget of tokens makes it comparable; leave it out"
        )
    unit = "step" if size.method else "prompt"
    rounds = 1 if size.method else TRIAL_ITERATIONS
    least = [(a + rounds * b) / TRIAL_SHARE for a, b in zip(cost.once, cost.each, strict=True)]
    judged = "" if budget.judge_tokens is None else f" and --judge-tokens {least[1]:,.0f}"
    raise ConfigError(
        f"--policy-tokens {budget.policy_tokens}: too few for one {unit} of a trial of {recipe}, "
        f"whose answers may be long: it takes {least[0]:,.0f}{judged}, and many times that to "
        "learn something"
    )


def _fitting(
    once: tuple[float, float], each: tuple[float, float], budget: TokenBudget, share: float
) -> int:
    """Return how many units fit into a share of the budget, by the tighter of its two parts."""
    limits = (budget.policy_tokens, budget.judge_tokens)
    rooms = [
        (share * limit - before) / unit
        for limit, before, unit in zip(limits, once, each, strict=True)
        if limit is not None and unit > 0
    ]
    return max(0, floor(min(rooms, default=0.0)))


def _planned(stages: "Iterator[PlannedStage] | Sequence[PlannedStage]") -> tuple[float, float]:
    """Return the policy's tokens and the judges' of planned stages, at most."""
    every = list(stages)
    judged = sum(stage.most_tokens for stage in every if stage.judge_calls)
    return float(sum(stage.most_tokens for stage in every) - judged), float(judged)


def _spent(units: "Iterator[SpentUnit] | Sequence[SpentUnit]") -> tuple[float, float]:
    every = [unit.cost for unit in units]
    return float(sum(c.policy_tokens for c in every)), float(sum(c.judge_tokens for c in every))


def _over(tokens: tuple[float, float], units: int) -> tuple[float, float]:
    return tokens[0] / units, tokens[1] / units
