"""How long a run may be within a budget of generated tokens: its steps, or its prompts.

A method that samples while it trains makes steps in one iteration; any other method takes prompts
in each of a few iterations. The plan's upper bounds size a trial; the tokens that the trial
generated size the compared runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Any

from ...configs.grouped_recipes import GRPO, RLOO, OnlineDPO
from ...configs.recipes import PPO, ChatGLMPPO, Quark, Recipe, UltraFeedbackPPO
from ...configs.schema import ConfigError, RunConfig
from ...stores.side_evals import measured_beside
from ..data.stage_names import is_eval_set
from ..evaluation.token_course import SpentUnit
from .plan import Plan

TRIAL_SHARE = 0.4
"""The share of the budget that a trial may use if every answer is as long as it may be."""
TRIAL_ITERATIONS = 2
"""Iterations of a trial: the cost of the second one predicts the cost of later ones."""
ITERATIONS = 4
"""Iterations of a compared run that takes prompts, unless there are too few prompts."""
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

    def settings(self, *, points: int = 0) -> Mapping[str, object]:
        """Return the settings of such a run, which publishes `points` policies while it trains."""
        if not self.method:
            return {"iterations": self.iterations, "prompts.per_iteration": self.units}
        training, every = f"training.{self.method}", max(1, self.units // max(1, points))
        examined = points > 0 and every < self.units
        return {
            "iterations": self.iterations,
            f"{training}.max_steps": self.units,
            f"{training}.publish_every": every if examined else 0,
            f"{training}.held_out_each": examined,
            f"{training}.choose": "last",
        }


def stepped_method(config: RunConfig) -> str:
    """Return the method that samples while it trains in a run; empty if none does."""
    return next((m for kinds, m in STEPPED.items() if isinstance(config.recipe, kinds)), "")


def planning_size(config: RunConfig) -> RunSize:
    """Return the size of a run whose plan gives the cost of a step or a prompt."""
    method = stepped_method(config)
    return RunSize(method=method, units=PLANNED_STEPS if method else PLANNED_PROMPTS)


def trial_size(config: RunConfig, plan: Plan, budget: int, trained: int) -> RunSize:
    """Return the size of a trial; `plan` is the plan of `config`, which has the `planning_size`.

    `trained` is the number of prompts to train on.

    Raises:
        ConfigError: if the budget is too small for one step or prompt.
    """
    size, room = planning_size(config), TRIAL_SHARE * budget
    if size.method:
        settings: Any = getattr(config.training, size.method)
        own = settings.rollouts * config.policy.sampling.max_tokens
        once = sum(_policy_tokens(plan, lambda stage: stage != size.method))
        # Judges may work in the steps themselves: their tokens do not count.
        steps = sum(s.most_tokens for s in plan.stages if s.stage == size.method)
        each = min(steps / size.units, own)
        trial = RunSize(method=size.method, units=_fitting(room - once, each))
    else:
        once, planned = 0, sum(_policy_tokens(plan, lambda _: True))
        each = TRIAL_ITERATIONS * planned / max(1, min(size.units, trained))
        units = min(_fitting(room, each), trained)
        trial = RunSize(iterations=TRIAL_ITERATIONS, units=units)
    if trial.units:
        return trial
    recipe, unit = config.recipe.name, "step" if size.method else "prompt"
    why = (
        f"too few for one {unit} of a trial of {recipe} if its answers are long, which takes "
        f"{(once + each) / TRIAL_SHARE:,.0f}; to learn something it takes many times that"
        if each
        else f"the plan of {recipe} generates nothing to learn from: leave it out"
    )
    raise ConfigError(f"--policy-tokens {budget}: {why}")


def compared_size(spent: Sequence[SpentUnit], tried: RunSize, budget: int, trained: int) -> RunSize:
    """Return the size of a compared run, by the units that its trial of size `tried` has spent.

    The later units predict the cost of more.
    """
    room = FILLED * budget
    if tried.method:
        late = [unit for unit in spent if (unit.step or 0) > tried.units // 2]
        each = _spent(late) / max(1, len(late))
        return replace(tried, units=_fitting(room - _spent(spent) + tried.units * each, each))
    last = max((unit.iteration for unit in spent), default=1)
    first = _spent(unit for unit in spent if unit.iteration <= 1) / tried.units
    later = _spent(unit for unit in spent if unit.iteration == last) / tried.units
    prompts = _fitting(room, first + (ITERATIONS - 1) * later)
    if prompts <= trained:
        return RunSize(iterations=ITERATIONS, units=prompts)
    rounds = _fitting(room - trained * (first - later), trained * later)
    return RunSize(iterations=max(1, rounds), units=trained)


def _fitting(room: float, each: float) -> int:
    """Return how many units of so many tokens there is room for."""
    return max(0, floor(room / each)) if each > 0 else 0


def _policy_tokens(plan: Plan, is_counted: Callable[[str], bool]) -> Iterator[int]:
    """Yield the most tokens that the policy may generate in stages to learn from."""
    for stage in plan.stages:
        beside = is_eval_set(stage.stage) or measured_beside(stage.stage) is not None
        if not beside and not stage.judge_calls and is_counted(stage.stage):
            yield stage.most_tokens


def _spent(units: Iterable[SpentUnit]) -> int:
    return sum(unit.cost.policy_tokens for unit in units)
