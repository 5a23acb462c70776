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
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import polars as pl

from ...configs.annotation import INITIAL
from ...configs.own_function import names_function
from ...configs.recipe_names import short_name
from ...configs.recipes import Annotated, Graded
from ...configs.schema import ConfigError, RunConfig
from ...configs.section import with_values
from ...policies.trainers.job import ONLINE
from ...stores.side_evals import side_eval_of
from ..data.splits import DEV, PARTS, TRAIN
from ..data.stage_names import is_eval_set
from ..evaluation.compare_runs import measured_scores
from ..evaluation.token_course import SpentUnit, spent_units
from ..lake.query.figures import measured_metrics
from ..lake.query.policy_figures import USUAL, values_of
from ..lake.query.runs import open_run
from ..recipes import recipe_entry
from ..run.models import is_rewarded
from .job import Job
from .plan import PlannedStage
from .planning import dry_plan
from .suite import Suite, overrides, shared_settings, work_on

OPTION = "--policy-tokens"
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
SHARED = (
    *("policy.", "critic.", "reward.", "annotation.", "evaluation.", "assessment.", "facts."),
    *("verdict.", "prompts.source", "prompts.held_out", "prompts.turns", "prompts.input"),
    *("prompts.fields", "prompts.task", "prompts.dev", "prompts.skip_bad", "prompts.max_"),
    *("prompts.chunk", "injection_guard"),
)
"""The settings that all methods take over from the first: the start, judges and measurements."""
ANNOTATORS = [f"annotation.{role}.model" for role in ("strong", "medium", "weak")]
USUALLY: Mapping[str, object] = {
    # The last policy is compared: no run chooses an earlier one, or ends early.
    "verdict.on_regression": "continue",
    "alarms.on_alarm": "continue",
    "assessment.kl": True,
    # Prompts that a method does not use are not set aside for it.
    "prompts.parts.layout": "used",
}
"""The default settings of a comparison."""
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

    def run(self, recipes: Sequence[str]) -> list[str]:
        """Try each method's settings, run all methods under all seeds; return the compared runs.

        Raises:
            ConfigError: before anything is run, if the budget is too small for a trial, or no
                choice is possible; or if a run was started with other settings.
        """
        for recipe in recipes:
            if not (recipe_entry(recipe).trials or names_function(recipe)):
                raise ConfigError(
                    f"--policy-tokens: {recipe} does not make its policy of tokens that it "
                    "generates, so no budget of them makes it comparable; leave it out"
                )
        given = (*overrides(OPTION, USUALLY), *self.suite.overrides)
        self.suite = replace(self.suite, overrides=given)
        shared = shared_settings(self._config(recipes[0], self.suite.seeds[0]), SHARED)
        del shared["critic.samples"]  # a method's own: eval sets ask the critic once, anyway
        if shared["assessment.reference"] is None and all(shared[model] for model in ANNOTATORS):
            shared["assessment.reference"] = INITIAL  # annotators give win-rates over M_0
        self.suite = replace(self.suite, overrides=(*given, *overrides(OPTION, shared)))
        sizes = [(recipe, *self._trial_size(recipe)) for recipe in recipes]
        chosen = [found for method in sizes if (found := self._choose(*method)) is not None]
        names = list[str]()
        for seed, (recipe, settings, size) in product(self.suite.seeds, chosen):
            names.append(name := self.suite.name(recipe, seed))
            self.note(f"{name}: {recipe}, {size}")
            self._work_on(name, recipe, seed, settings, size.settings(points=POINTS))
        return names

    def _config(self, recipe: str, seed: int, *over: Mapping[str, object]) -> RunConfig:
        """Return the configuration of a method; `over` is laid over the user's settings."""
        own = {path: value for part in (*over, {"seed": seed}) for path, value in part.items()}
        config = self.suite.load(recipe, OPTION, own)
        parts = config.prompts.parts
        changed: dict[str, object] = {
            f"prompts.parts.{part}": PROPORTION * getattr(parts, part) for part in PARTS
        }
        makes_reward = isinstance(config.recipe, Annotated | Graded) and not is_rewarded(config)
        if stepped_method(config) and not makes_reward:
            # Its steps may take from all prompts, as other methods may.
            changed["prompts.per_iteration"] = None
        return with_values(config, changed)

    def _trial_size(self, recipe: str) -> tuple[RunSize, int]:
        """Return the size of a trial, by a plan of a few prompts or steps, and the prompts there.

        Raises:
            ConfigError: if the budget is too small for one step or prompt, or without dev prompts.
        """
        seed = self.suite.seeds[0] + TRIAL_SEED
        method = stepped_method(self._config(recipe, seed))
        few = RunSize(method=method, units=PLANNED_STEPS if method else PLANNED_PROMPTS)
        config = self._config(recipe, seed, few.settings())
        plan = dry_plan(Job(config=config, lake=self.suite.lake, name=f"{self.suite.prefix}-trial"))
        if not plan.groups.get(DEV):
            raise ConfigError(
                f"{OPTION}: dev prompts choose the settings of a method, and the run lacks them: "
                "set prompts.dev_share, such as 0.05, or prompts.dev"
            )
        prompts, room = sum(plan.prompts[TRAIN].values()), TRIAL_SHARE * self.budget
        once = sum(s.most_tokens for s in plan.stages if s.stage != method and _teaches(s))
        if method:
            rollouts: int = getattr(config.training, method).rollouts
            each = rollouts * config.policy.sampling.max_tokens
            size = replace(few, units=_fitting(room - once, each))
        else:
            once, each = 0, TRIAL_ITERATIONS * once / max(1, min(few.units, prompts))
            units = min(_fitting(room, each), prompts)
            size = RunSize(units=units, iterations=TRIAL_ITERATIONS)
        if not size.units:
            raise ConfigError(
                f"{OPTION} {self.budget}: too few for one {'step' if method else 'prompt'} of a "
                f"trial of {recipe} if its answers are long, which takes "
                f"{(once + each) / TRIAL_SHARE:,.0f}; to learn something it takes many times that"
            )
        return size, prompts

    def _choose(
        self, recipe: str, size: RunSize, prompts: int
    ) -> tuple[str, Mapping[str, float], RunSize] | None:
        """Run a method's trials; return it, its best settings and the size of its compared runs."""
        lake, trials = self.suite.lake, dict[str, Mapping[str, float]]()
        seed = self.suite.seeds[0] + TRIAL_SEED
        own, tried = self._config(recipe, seed), recipe_entry(recipe).trials or ({},)
        for number, trial in enumerate(tried[: self.trials], start=1):
            name = f"{self.suite.prefix}-trial-{short_name(recipe)}-{number}"
            trials[name] = settings = {
                path: float(f"{attrgetter(path)(own) * by:.6g}") for path, by in trial.items()
            }
            self.note(f"{name}: trial of {recipe}, {size}: {_settings_text(settings)}")
            # Held-out prompts choose nothing: a trial is not measured on them.
            few = {"prompts.max_test": 1, "assessment.kl": False, **size.settings()}
            self._work_on(name, recipe, seed, settings, few)
        figure, scores = _dev_scores(lake, trials)
        if not scores:
            self.note(f"{recipe} is left out: no trial came to a policy that was measured")
            return None
        # Of equal scores the first: the preset's own settings before others.
        best = max(scores, key=scores.__getitem__)
        with closing(open_run(lake, best)) as run:
            compared = compared_size(list(spent_units(run.journal)), size, self.budget, prompts)
        listing = ", ".join(f"{scores[n]:.3f} by {_settings_text(trials[n])}" for n in scores)
        choice = f"{_settings_text(trials[best])}, {compared}"
        self.note(f"{recipe}: {figure} on dev prompts is {listing}; chosen: {choice}")
        return recipe, trials[best], compared

    def _work_on(self, name: str, recipe: str, seed: int, *over: Mapping[str, object]) -> None:
        job = Job(config=self._config(recipe, seed, *over), lake=self.suite.lake, name=name)
        work_on(job, self.turn, self.note)


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
    tried = {
        path.split(".")[1] for trial in recipe_entry(config.recipe.name).trials for path in trial
    }
    return next(iter(tried & ONLINE), "")


def _fitting(room: float, each: float) -> int:
    """Return how many units of so many tokens there is room for."""
    return max(0, int(room // each)) if each > 0 else 0


def _teaches(stage: PlannedStage) -> bool:
    """Whether the policy answers in a stage, and a run learns from the answers."""
    measures = is_eval_set(stage.stage) or side_eval_of(stage.stage) is not None
    return not (measures or stage.judge_calls)


def _spent(units: Iterable[SpentUnit]) -> int:
    return sum(unit.cost.policy_tokens for unit in units)


def _dev_scores(lake: Path, names: Iterable[str]) -> tuple[str, dict[str, float]]:
    """Return the first figure that all measured trials share, and the last policy's by trial."""
    measured = dict[str, dict[str, float]]()
    for name in names:
        with closing(open_run(lake, name)) as run:
            every = measured_scores(run)
        scores = every.filter(pl.col("benchmark") == DEV, pl.col("iteration") > 0)
        metrics = measured_metrics(scores)
        found = {figure: values_of(scores, figure, metrics) for figure in USUAL}
        means = {figure: fmean(of[max(of)].values()) for figure, of in found.items() if of}
        if means:
            measured[name] = means
    figure = next((f for f in USUAL if all(f in means for means in measured.values())), "")
    return figure, {name: means[figure] for name, means in measured.items() if figure}
