"""Methods at equal tokens: the same number of trials for each, then runs with the same budget.

A trial is a run at a seed that no compared run has, for a share of the budget; dev prompts alone
choose among a method's trials. A method is then run once a seed with the whole budget. No run
re-uses units of another one, as each pays for its own. The first recipe decides the starting
policy, the judges and the measurements of all methods. The decisions follow from the runs in
the lake, so the same call continues a comparison.

A method that samples while it trains makes steps in one iteration; any other method takes prompts
in each of a few iterations. The plan's upper bounds size a trial; the tokens that the trial
generated size the compared runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast, get_args

import polars as pl

from ...configs.annotation import INITIAL, Role
from ...configs.describe import settable
from ...configs.grouped_recipes import GRPO, RLOO, OnlineDPO
from ...configs.load import load_config
from ...configs.own_function import names_function
from ...configs.recipe_names import short_name
from ...configs.recipes import (
    PPO,
    Annotated,
    ChatGLMPPO,
    Graded,
    Quark,
    Recipe,
    UltraFeedbackPPO,
)
from ...configs.schema import ConfigError, RunConfig
from ...stores.side_evals import measured_beside
from ..data.splits import DEV, PARTS, TRAIN
from ..data.stage_names import is_eval_set
from ..evaluation.compare_runs import measured_scores
from ..evaluation.token_course import SpentUnit, spent_units
from ..lake.query.figures import measured_metrics
from ..lake.query.policy_figures import USUAL, values_of
from ..lake.query.runs import open_run
from ..recipes import RECIPES
from ..recipes.trial_settings import Trial
from ..run.models import is_rewarded
from .control import resolved_at, resolved_values
from .job import Job
from .plan import Plan
from .planning import dry_plan
from .suite import Suite, named_recipes, overrides, work_on

TRIAL_SEED = 1000
"""The trials' seed is this far above the first compared seed, so that seeds may be added."""
TRIAL_SHARE = 0.4
"""The share of the budget that a trial may use if every answer is as long as it may be."""
TRIAL_ITERATIONS = 2
"""Iterations of a trial: the cost of the second one predicts the cost of later ones."""
ITERATIONS = 4
"""Iterations of a compared run that takes prompts, unless there are too few prompts."""
FILLED = 0.94
"""The share of the budget to aim at: answers may grow as a policy learns."""
POINTS = 8
"""Policies that a compared run of steps publishes, so that one of the last is in the budget."""
PLANNED_PROMPTS, PLANNED_STEPS = 64, 2
TRIALS: Mapping[str, tuple[Trial, ...]] = {
    name: recipe.trials for name, recipe in RECIPES.items() if recipe.trials
}
"""The trials of each recipe that trains its policy on generated rows."""
STEPPED: Mapping[tuple[type[Recipe], ...], str] = {
    (PPO, UltraFeedbackPPO, ChatGLMPPO): "ppo",
    (Quark,): "quark",
    (GRPO,): "grpo",
    (RLOO,): "rloo",
    (OnlineDPO,): "online_dpo",
}
"""The recipes that sample while they train, by their training method."""
ALIKE = (
    *("policy.", "critic.", "reward.", "evaluation.", "assessment.", "annotation.", "facts."),
    *("verdict.", "prompts.source", "prompts.held_out", "prompts.turns", "prompts.input"),
    *("prompts.fields", "prompts.task", "prompts.dev", "prompts.skip_bad", "prompts.max_test"),
    *("prompts.max_dev", "prompts.chunk", "injection_guard"),
)
"""The settings that all methods share: the start, the judges, and the measurements."""
OF_A_METHOD = ("critic.samples",)
"""Exceptions that remain a method's own: eval sets ask the critic once, whatever their value."""
USUALLY = {
    # The last policy is compared: no run chooses an earlier one, or ends early.
    "verdict.on_regression": "continue",
    "alarms.on_alarm": "continue",
    "assessment.kl": True,
    # Prompts that a method does not use are not set aside for it.
    "prompts.parts.layout": "used",
}
"""The default settings of a comparison."""
UNEXAMINED = {"prompts.max_test": 1, "assessment.kl": False}
"""A trial's policies are hardly examined on held-out prompts, to prevent choosing by them."""
PROPORTION = 1000
"""Sizes of parts are proportions: an iteration may have more prompts than they add up to."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    """A compared recipe: its trials, their size, and the number of prompts to train on."""

    recipe: str
    trials: tuple[Trial, ...]
    size: RunSize
    prompts: int


def compared_methods(text: str) -> list[str]:
    """Return the recipes of a list with commas; `all` are the recipes with trials.

    Raises:
        ConfigError: for an unknown recipe.
    """
    return named_recipes(text, every=TRIALS, shown=TRIALS)


@dataclass(slots=True, kw_only=True)
class EqualComparison:
    """Works on a comparison: each method gets the budget of generated tokens, and so many trials.

    `turn` works on a job to its end; an error of it ends the comparison, which the same call
    continues. A method without rows to train on keeps no other from running.
    """

    suite: Suite
    budget: int
    trials: int
    turn: Callable[[Job], None]
    note: Callable[[str], None]
    _shared: Mapping[str, object] = field(default_factory=dict[str, object], init=False)

    def run(self, recipes: Sequence[str]) -> list[str]:
        """Try each method's settings, run all methods under all seeds; return the compared runs.

        Raises:
            ConfigError: before anything is run, if the budget is too small for a trial, or no
                choice is possible; or if a run was started with other settings.
        """
        tried = {recipe: _trials_of(recipe, self.trials) for recipe in recipes}
        self._shared = self._alike(recipes[0])
        methods = [self._sized(recipe, trials) for recipe, trials in tried.items()]
        chosen = [(method.recipe, found) for method in methods if (found := self._choose(method))]
        return [
            self._compare(recipe, settings, size, seed)
            for seed in self.suite.seeds
            for recipe, (settings, size) in chosen
        ]

    @property
    def _trial_seed(self) -> int:
        return self.suite.seeds[0] + TRIAL_SEED

    def _alike(self, recipe: str) -> Mapping[str, object]:
        """Return the settings that all methods share; with annotators, win-rates over M_0."""
        first = self._config(recipe, self.suite.seeds[0])
        known = [f for f in settable() if f.path.startswith(ALIKE) and not f.secret]
        shared = resolved_values(first, [f for f in known if f.path not in OF_A_METHOD])
        named = all(first.annotation.model_of(role).model for role in get_args(Role))
        if named and first.assessment.reference is None:
            shared["assessment.reference"] = INITIAL
        return shared

    def _config(self, recipe: str, seed: int, *over: Mapping[str, object]) -> RunConfig:
        """Return the configuration of a method; `over` is laid over the user's settings."""
        suite = self.suite
        own = {path: value for part in (self._shared, *over) for path, value in part.items()}
        usual = overrides("--policy-tokens", USUALLY)
        layers = [*usual, *suite.overrides, *overrides("--policy-tokens", {**own, "seed": seed})]
        config = load_config(suite.config, recipe, layers, suite.env)
        parts = config.prompts.parts
        sizes = {part: PROPORTION * getattr(parts, part) for part in PARTS}
        changed: dict[str, object] = {"parts": parts.model_copy(update=sizes)}
        makes_reward = isinstance(config.recipe, Annotated | Graded) and not is_rewarded(config)
        if stepped_method(config) and not makes_reward:
            # Its steps may take from all prompts, as other methods may.
            changed["per_iteration"] = None
        prompts = config.prompts.model_copy(update=changed)
        return config.model_copy(update={"prompts": prompts})

    def _sized(self, recipe: str, trials: tuple[Trial, ...]) -> _Method:
        """Return a method with the size of its trials, from a plan of a few prompts or steps.

        Raises:
            ConfigError: if the budget is too small for one step or prompt, or without dev prompts.
        """
        seed = self._trial_seed
        stepped = stepped_method(self._config(recipe, seed))
        few = RunSize(method=stepped, units=PLANNED_STEPS if stepped else PLANNED_PROMPTS)
        config = self._config(recipe, seed, few.settings())
        plan = dry_plan(Job(config=config, lake=self.suite.lake, name=f"{self.suite.prefix}-trial"))
        if not plan.groups.get(DEV):
            raise ConfigError(
                "--policy-tokens: dev prompts choose the settings of a method, and the run lacks "
                "them: set prompts.dev_share, such as 0.05, or prompts.dev; held-out prompts "
                "never choose"
            )
        prompts, once = sum(plan.prompts[TRAIN].values()), _most_tokens(plan, without=stepped)
        room = TRIAL_SHARE * self.budget
        if stepped:
            settings: Any = getattr(config.training, stepped)
            each = settings.rollouts * config.policy.sampling.max_tokens
            size = replace(few, units=_fitting(room - once, each))
        else:
            each = TRIAL_ITERATIONS * once / max(1, min(few.units, prompts))
            units = min(_fitting(room, each), prompts)
            size, once = RunSize(iterations=TRIAL_ITERATIONS, units=units), 0
        if not size.units:
            unit = "step" if stepped else "prompt"
            why = (
                f"too few for one {unit} of a trial of {recipe} if its answers are long, which "
                f"takes {(once + each) / TRIAL_SHARE:,.0f}; to learn something it takes many times "
                "that"
                if each
                else f"the plan of {recipe} generates nothing to learn from: leave it out"
            )
            raise ConfigError(f"--policy-tokens {self.budget}: {why}")
        return _Method(recipe=recipe, trials=trials, size=size, prompts=prompts)

    def _choose(self, method: _Method) -> tuple[Mapping[str, float], RunSize] | None:
        """Run a method's trials; return the best settings and the size of its compared runs."""
        lake, recipe, size = self.suite.lake, method.recipe, method.size
        own, trials = self._config(recipe, self._trial_seed), dict[str, Mapping[str, float]]()
        for number, trial in enumerate(method.trials, start=1):
            name = f"{self.suite.prefix}-trial-{short_name(recipe)}-{number}"
            trials[name] = settings = _settings(trial, own)
            self.note(f"{name}: trial of {recipe}, {size}: {_settings_text(settings)}")
            config = self._config(recipe, self._trial_seed, settings, UNEXAMINED, size.settings())
            work_on(Job(config=config, lake=lake, name=name), self.turn, self.note)
        figure, scores = _dev_scores(lake, trials)
        if not scores:
            self.note(f"{recipe} is left out: no trial came to a policy that was measured")
            return None
        # Of equal scores the first: the preset's own settings before others.
        best = max(scores, key=scores.__getitem__)
        with closing(open_run(lake, best)) as run:
            spent = list(spent_units(run.journal))
        compared = compared_size(spent, size, self.budget, method.prompts)
        listing = ", ".join(
            f"{score:.3f} by {_settings_text(trials[name])}" for name, score in scores.items()
        )
        self.note(
            f"{recipe}: {figure} on dev prompts is {listing}; "
            f"chosen: {_settings_text(trials[best])}, {compared}"
        )
        return trials[best], compared

    def _compare(self, recipe: str, settings: Mapping[str, float], size: RunSize, seed: int) -> str:
        """Run a method under a seed; return the name of the run."""
        name = self.suite.name(recipe, seed)
        self.note(f"{name}: {recipe}, {size}")
        config = self._config(recipe, seed, settings, size.settings(points=POINTS))
        work_on(Job(config=config, lake=self.suite.lake, name=name), self.turn, self.note)
        return name


def _trials_of(recipe: str, count: int) -> tuple[Trial, ...]:
    """Return the trials of a recipe; the user's own has one, with its settings."""
    if names_function(recipe):
        return ({},)
    if recipe not in TRIALS:
        raise ConfigError(
            f"--policy-tokens: {recipe} does not make its policy of tokens that it generates, so "
            f"no budget of them makes it comparable; leave it out, or compare some of "
            f"{', '.join(TRIALS)}"
        )
    most = min(map(len, TRIALS.values()))
    if count > most:
        raise ConfigError(f"--trials {count}: each method has {most} settings to try, or fewer")
    return TRIALS[recipe][:count]


def _settings(trial: Trial, config: RunConfig) -> dict[str, float]:
    """Return the changes of a trial to a configuration that has the preset's own settings."""
    values = {path: cast("float", resolved_at(config, path)) * by for path, by in trial.items()}
    return {path: float(f"{value:.6g}") for path, value in values.items()}


def _settings_text(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{path}={value:g}" for path, value in settings.items()) or "the preset's own"


def compared_size(spent: Sequence[SpentUnit], tried: RunSize, budget: int, prompts: int) -> RunSize:
    """Return the size of a compared run, by the units that its trial of size `tried` has spent.

    The later units predict the cost of more. `prompts` is the number of prompts to train on.
    """
    room = FILLED * budget
    if tried.method:
        late = [unit for unit in spent if (unit.step or 0) > tried.units // 2]
        each = _spent(late) / max(1, len(late))
        return replace(tried, units=_fitting(room - _spent(spent) + tried.units * each, each))
    last = max((unit.iteration for unit in spent), default=1)
    first = _spent(unit for unit in spent if unit.iteration <= 1) / tried.units
    later = _spent(unit for unit in spent if unit.iteration == last) / tried.units
    fitting = _fitting(room, first + (ITERATIONS - 1) * later)
    if fitting <= prompts:
        return RunSize(iterations=ITERATIONS, units=fitting)
    rounds = _fitting(room - prompts * (first - later), prompts * later)
    return RunSize(iterations=max(1, rounds), units=prompts)


def stepped_method(config: RunConfig) -> str:
    """Return the method that samples while it trains in a run; empty if none does."""
    return next((m for kinds, m in STEPPED.items() if isinstance(config.recipe, kinds)), "")


def _fitting(room: float, each: float) -> int:
    """Return how many units of so many tokens there is room for."""
    return max(0, int(room // each)) if each > 0 else 0


def _most_tokens(plan: Plan, without: str) -> int:
    """Return the most tokens that the policy may generate to learn from, except in one stage."""
    return sum(
        stage.most_tokens
        for stage in plan.stages
        if not (is_eval_set(stage.stage) or measured_beside(stage.stage) is not None)
        and not stage.judge_calls
        and stage.stage != without
    )


def _spent(units: Iterable[SpentUnit]) -> int:
    return sum(unit.cost.policy_tokens for unit in units)


def _dev_scores(lake: Path, names: Mapping[str, object]) -> tuple[str, dict[str, float]]:
    """Return the first figure that all measured trials share, and its mean by trial."""
    measured = {name: of for name in names if (of := _measured(lake, name))}
    for figure in USUAL:
        if measured and all(figure.name in of for of in measured.values()):
            return figure.name, {name: of[figure.name] for name, of in measured.items()}
    return "", {}


def _measured(lake: Path, name: str) -> dict[str, float]:
    """Return the figures of a run's last policy on dev prompts; empty without a trained one."""
    with closing(open_run(lake, name)) as run:
        scores = measured_scores(run).filter(pl.col("benchmark") == DEV, pl.col("iteration") > 0)
    metrics = measured_metrics(scores)
    found = {figure.name: values_of(scores, figure, metrics) for figure in USUAL}
    return {figure: fmean(of[max(of)].values()) for figure, of in found.items() if of}
