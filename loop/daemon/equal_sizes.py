"""How long a run may be within a budget of generated tokens: its steps, or its prompts.

A method that samples while it trains makes steps in one iteration; any other method takes prompts
in each of a few iterations. The plan's upper bounds size a trial; the tokens that the trial
generated size the compared runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...configs.grouped_recipes import GRPO, RLOO, OnlineDPO
from ...configs.load import Override
from ...configs.recipes import PPO, ChatGLMPPO, Quark, Recipe, UltraFeedbackPPO
from ...configs.schema import ConfigError, RunConfig
from ...stores.side_evals import measured_beside
from ..data.stage_names import is_eval_set
from ..evaluation.token_course import SpentUnit, TokenBudget
from .plan import Plan, PlannedStage

SOURCE = "--policy-tokens"
TRIAL_SHARE = 0.4
"""The share of the budget that a trial may use if every answer is as long as it may be."""
TRIAL_ITERATIONS = 2
"""Iterations of a trial: the cost of the second one predicts the cost of later ones."""
ITERATIONS = 4
"""Iterations of a compared run that takes prompts, unless there are too few prompts."""
POINTS = 8
"""Policies that a compared run of steps publishes, so that one of the last is in the budget."""
FILLED = 0.94
"""The share of the budget to aim at: answers may grow as a policy learns."""
PLANNED_PROMPTS, PLANNED_STEPS = 64, 2
STEPPED: Mapping[tuple[type[Recipe], ...], str] = {
    (PPO, UltraFeedbackPPO, ChatGLMPPO): "ppo",
    (Quark,): "quark",
    (GRPO,): "grpo",
    (RLOO,): "rloo",
    (OnlineDPO,): "online_dpo",
}
"""The recipes that sample while they train, by their training method."""
Tokens = NDArray[np.float64]
"""Generated tokens: the policy's, then its judges'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """How long a run is: `units` are steps of an online `method`, or prompts an iteration."""

    method: str = ""
    units: int = 0
    iterations: int = 1

    def __str__(self) -> str:
        if self.method:
            return f"{self.units} steps"
        return f"{self.iterations} iterations of {self.units} prompts"

    def overrides(self, *, points: int = 0) -> list[Override]:
        """Return the settings of such a run, which publishes `points` policies while it trains."""
        named: dict[str, object] = {"iterations": self.iterations}
        if self.method:
            training, every = f"training.{self.method}", max(1, self.units // max(1, points))
            examined = points > 0 and every < self.units
            named |= {
                f"{training}.max_steps": self.units,
                f"{training}.publish_every": every if examined else 0,
                f"{training}.held_out_each": examined,
                f"{training}.choose": "last",
            }
        else:
            named["prompts.per_iteration"] = self.units
        return [Override(source=SOURCE, path=path, value=value) for path, value in named.items()]


def stepped_method(config: RunConfig) -> str:
    """Return the method that samples while it trains in a run; empty if none does."""
    return next((m for kinds, m in STEPPED.items() if isinstance(config.recipe, kinds)), "")


def planning_size(config: RunConfig) -> RunSize:
    """Return the size of a run whose plan gives the cost of a step or a prompt."""
    method = stepped_method(config)
    return RunSize(method=method, units=PLANNED_STEPS if method else PLANNED_PROMPTS)


def counted_stages(plan: Plan) -> list[PlannedStage]:
    """Return the stages whose tokens count: those that make something to learn from."""
    return [s for s in plan.stages if not is_eval_set(s.stage) and measured_beside(s.stage) is None]


def trial_size(config: RunConfig, plan: Plan, budget: TokenBudget, trained: int) -> RunSize:
    """Return the size of a trial; `plan` is the plan of `config`, which has the `planning_size`.

    `trained` is the number of prompts to train on.

    Raises:
        ConfigError: if the budget is too small for one step or prompt.
    """
    size, stages = planning_size(config), counted_stages(plan)
    once = np.zeros(2)
    if size.method:
        settings: Any = getattr(config.training, size.method)
        own = size.units * settings.rollouts * config.policy.sampling.max_tokens
        # Judges may work in the steps themselves.
        every = sum(stage.most_tokens for stage in stages if stage.stage == size.method)
        once = _planned_tokens(stage for stage in stages if stage.stage != size.method)
        each = np.array([min(every, own), max(0, every - own)]) / size.units
        trial = RunSize(method=size.method)
    else:
        each = TRIAL_ITERATIONS * _planned_tokens(stages) / max(1, min(size.units, trained))
        trial = RunSize(iterations=TRIAL_ITERATIONS)
    units = _fitting(once, each, budget, TRIAL_SHARE)
    if not units:
        unit = "step" if size.method else "prompt"
        raise _too_small(config.recipe.name, unit, (once + each) / TRIAL_SHARE, each, budget)
    return replace(trial, units=units if size.method else min(units, trained))


def compared_size(
    spent: Sequence[SpentUnit], tried: RunSize, budget: TokenBudget, trained: int
) -> RunSize:
    """Return the size of a compared run, by the units that its trial of size `tried` has spent.

    The later units predict the cost of more.
    """
    if tried.method:
        late = [unit for unit in spent if (unit.step or 0) > tried.units // 2]
        each = _spent_tokens(late) / max(1, len(late))
        once = _spent_tokens(spent) - tried.units * each
        return replace(tried, units=_fitting(once, each, budget, FILLED))
    last = max((unit.iteration for unit in spent), default=1)
    first = _spent_tokens(unit for unit in spent if unit.iteration <= 1) / tried.units
    later = _spent_tokens(unit for unit in spent if unit.iteration == last) / tried.units
    prompts = _fitting(np.zeros(2), first + (ITERATIONS - 1) * later, budget, FILLED)
    if prompts <= trained:
        return RunSize(iterations=ITERATIONS, units=prompts)
    rounds = _fitting(trained * (first - later), trained * later, budget, FILLED)
    return RunSize(iterations=max(1, rounds), units=trained)


def _fitting(once: Tokens, each: Tokens, budget: TokenBudget, share: float) -> int:
    """Return how many units fit into a share of the budget, by the tighter of its two parts."""
    limits = (budget.policy_tokens, budget.judge_tokens)
    rooms = [
        (share * limit - before) / unit
        for limit, before, unit in zip(limits, once, each, strict=True)
        if limit is not None and unit > 0
    ]
    return max(0, floor(min(rooms, default=0.0)))


def _too_small(
    recipe: str, unit: str, least: Tokens, each: Tokens, budget: TokenBudget
) -> ConfigError:
    if not each.sum():
        return ConfigError(
            f"--policy-tokens {budget.policy_tokens}: the plan of {recipe} generates nothing to "
            "learn from, so no budget of tokens makes it comparable; leave it out"
        )
    judged = "" if budget.judge_tokens is None else f" and --judge-tokens {least[1]:,.0f}"
    return ConfigError(
        f"--policy-tokens {budget.policy_tokens}: too few for one {unit} of a trial of {recipe} "
        f"if its answers are long, which takes {least[0]:,.0f}{judged}; to learn something it "
        "takes many times that"
    )


def _planned_tokens(stages: Iterable[PlannedStage]) -> Tokens:
    """Return the most tokens that planned stages may generate."""
    every = list(stages)
    judged = sum(stage.most_tokens for stage in every if stage.judge_calls)
    return np.array([sum(stage.most_tokens for stage in every) - judged, judged], dtype=float)


def _spent_tokens(units: Iterable[SpentUnit]) -> Tokens:
    every = [unit.cost for unit in units]
    return np.array(
        [sum(c.policy_tokens for c in every), sum(c.judge_tokens for c in every)], dtype=float
    )
