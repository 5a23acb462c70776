"""Methods at equal tokens: the same number of trials for each, then runs with the same budget.

A trial is a run at a seed that no compared run has, for a share of the budget; dev prompts alone
choose among a method's trials. A method is then run once a seed with the whole budget. No run
re-uses units of another one, as each pays for its own. The first variant decides the starting
policy, the judges and the measurements of all methods.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import cast, get_args

import polars as pl

from ...configs.annotation import INITIAL, Role
from ...configs.describe import settable
from ...configs.load import Override, load_config, semantic
from ...configs.own_function import names_function
from ...configs.recipes import Annotated, Graded
from ...configs.schema import ConfigError, RunConfig
from ...configs.variants import short_name
from ...stores.keys import canonical_json
from ..data.splits import DEV, PARTS, TRAIN
from ..evaluation.compare_runs import measured_scores
from ..evaluation.token_course import SpentUnit, TokenBudget, TokenCost, spent_units
from ..lake.query.figures import measured_metrics
from ..lake.query.model_names import checkpoints
from ..lake.query.policy_figures import USUAL, values_of
from ..lake.query.runs import ending
from ..recipes import RECIPES, variant_of
from ..recipes.trial_settings import Trial
from ..run.models import is_rewarded
from ..run.outcomes import AlarmStopError, NothingToTrainOn, Regressed
from .control import resolved_at
from .equal_record import (
    ComparedMethod,
    EqualRecord,
    TriedSettings,
    opened_run,
    read_record,
    require_same,
    write_record,
)
from .equal_sizes import (
    POINTS,
    SOURCE,
    RunSize,
    compared_size,
    counted_stages,
    planning_size,
    stepped_method,
    trial_size,
)
from .job import Job
from .plan import Plan
from .planning import dry_plan
from .suite import Suite, named_recipes

TRIAL_SEED = 1000
"""The trials' seed is this far above the first compared seed, so that seeds may be added."""
TRIALS: Mapping[str, tuple[Trial, ...]] = {
    name: variant.trials for name, variant in RECIPES.items() if variant.trials
}
"""The trials of each recipe that trains its policy on generated rows."""
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
    "report.each_iteration": False,
    # Prompts that a method does not use are not set aside for it.
    "prompts.parts.layout": "used",
}
"""The default settings of a comparison."""
UNEXAMINED = {"prompts.max_test": 1, "assessment.kl": False}
"""A trial's policies are hardly examined on held-out prompts, to prevent choosing by them."""
PROPORTION = 1000
"""Sizes of parts are proportions: an iteration may have more prompts than they add up to."""
Turn = Callable[[Job], None]
Note = Callable[[str], None]


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
    budget: TokenBudget
    trials: int
    turn: Turn
    note: Note
    _shared: list[Override] = field(default_factory=list[Override], init=False)

    def run(self, recipes: Sequence[str]) -> EqualRecord:
        """Try each method's settings, run all methods under all seeds, and return the decisions.

        Raises:
            ConfigError: before anything is run, if the budget is too small for a trial, no choice
                is possible, or the comparison was started with other settings.
        """
        suite = self.suite
        self._shared = self._alike(recipes[0])
        record = self._begun(recipes)
        write_record(suite.lake, record)
        for number in range(len(record.methods)):
            methods = list(record.methods)
            methods[number] = self._tried(record, methods[number])
            record = replace(record, methods=tuple(methods))
            write_record(suite.lake, record)
        for seed in suite.seeds:
            for method in record.methods:
                if method.size is not None:
                    self._compare(record, method, method.size, seed)
        return record

    def _alike(self, recipe: str) -> list[Override]:
        """Return the settings that all methods share; with annotators, win-rates over M_0."""
        first = self._config(recipe, self.suite.seeds[0])
        known = [f.path for f in settable() if f.path.startswith(ALIKE) and not f.secret]
        shared = {path: resolved_at(first, path) for path in known if path not in OF_A_METHOD}
        named = all(first.annotation.model_of(role).model for role in get_args(Role))
        if named and first.assessment.reference is None:
            shared["assessment.reference"] = INITIAL
        return _overrides(shared)

    def _config(self, recipe: str, seed: int, *over: Override) -> RunConfig:
        """Return the configuration of a method; `over` is laid over the user's settings."""
        suite = self.suite
        own = [*suite.overrides, *self._shared, *over, *_overrides({"seed": seed})]
        config = load_config(suite.config, recipe, [*_overrides(USUALLY), *own], suite.env)
        parts = config.prompts.parts
        sizes = {part: PROPORTION * getattr(parts, part) for part in PARTS}
        changed: dict[str, object] = {"parts": parts.model_copy(update=sizes)}
        makes_reward = isinstance(config.recipe, Annotated | Graded) and not is_rewarded(config)
        if stepped_method(config) and not makes_reward:
            # Its steps may take from all prompts, as other methods may.
            changed["per_iteration"] = None
        prompts = config.prompts.model_copy(update=changed)
        return config.model_copy(update={"prompts": prompts})

    def _begun(self, recipes: Sequence[str]) -> EqualRecord:
        """Return the stored comparison, or a new one with its trials and their size."""
        suite, budget = self.suite, self.budget
        known = read_record(suite.lake, suite.prefix)
        seed = suite.seeds[0] + TRIAL_SEED if known is None else known.trial_seed
        tried = {recipe: _trials_of(recipe, self.trials) for recipe in recipes}
        configs = {recipe: self._config(recipe, seed) for recipe in recipes}
        asked = {
            "--policy-tokens": budget.policy_tokens,
            "--judge-tokens": budget.judge_tokens,
            "--trials": self.trials,
            "--variants": ",".join(recipes),
            "settings": {recipe: semantic(config) for recipe, config in configs.items()},
        }
        asked = json.loads(canonical_json(asked))
        if known is not None:
            require_same(known, asked, suite.seeds)
            return replace(known, seeds=suite.seeds)
        plans = {recipe: self._plan(config, seed) for recipe, config in configs.items()}
        judged = any(s.judge_calls for plan in plans.values() for s in counted_stages(plan))
        if budget.judge_tokens is not None and not judged:
            raise ConfigError(
                f"--judge-tokens {budget.judge_tokens}: none of these methods asks a judge while "
                "it trains, so nothing would be bounded; leave it out"
            )
        methods = list[ComparedMethod]()
        for recipe, plan in plans.items():
            config, name = configs[recipe], short_name(recipe)
            trained = sum(plan.prompts[TRAIN].values())
            trials = tuple(
                TriedSettings(
                    run=f"{suite.prefix}-trial-{name}-{number}", settings=_settings(trial, config)
                )
                for number, trial in enumerate(tried[recipe], start=1)
            )
            size = trial_size(config, plan, budget, trained)
            methods.append(
                ComparedMethod(
                    name=name, recipe=recipe, trials=trials, trial_size=size, trained=trained
                )
            )
        return EqualRecord(
            name=suite.prefix,
            asked=asked,
            budget=budget,
            trials=self.trials,
            trial_seed=seed,
            seeds=suite.seeds,
            methods=tuple(methods),
        )

    def _plan(self, config: RunConfig, seed: int) -> Plan:
        """Return the plan of a few prompts or steps of a method, by its preset's own settings."""
        few = self._config(config.recipe.name, seed, *planning_size(config).overrides())
        plan = dry_plan(Job(config=few, lake=self.suite.lake, name=f"{self.suite.prefix}-trial"))
        if not plan.groups.get(DEV):
            raise ConfigError(
                "--policy-tokens: dev prompts choose the settings of a method, and the run lacks "
                "them: set prompts.dev_share, such as 0.05, or prompts.dev; held-out prompts "
                "never choose"
            )
        return plan

    def _tried(self, record: EqualRecord, method: ComparedMethod) -> ComparedMethod:
        """Run a method's trials; return it with their scores, the best settings and its size."""
        if method.size is not None or method.left_out:
            return method
        lake, size = self.suite.lake, method.trial_size
        for trial in method.trials:
            self.note(f"{trial.run}: trial of {method.recipe}, {size}: {trial}")
            own = _overrides({**trial.settings, **UNEXAMINED})
            config = self._config(method.recipe, record.trial_seed, *own, *size.overrides())
            self._work(Job(config=config, lake=lake, name=trial.run))
        trials = _score_trials(lake, method.trials)
        scores = {place: t.score for place, t in enumerate(trials) if t.score is not None}
        if not scores:
            left_out = "; ".join(dict.fromkeys(trial.reason for trial in trials))
            self.note(f"{method.recipe} is left out: no trial came to a policy that was measured")
            return replace(method, trials=trials, left_out=left_out)
        # Of equal scores the first: the preset's own settings before others.
        chosen = max(scores, key=lambda place: (scores[place], -place))
        _, spent = _course(lake, trials[chosen].run)
        size = compared_size(spent, size, record.budget, method.trained)
        self.note(f"{method.recipe}: chosen is {trials[chosen]}; its runs have {size}")
        return replace(method, trials=trials, chosen=chosen, size=size)

    def _compare(
        self, record: EqualRecord, method: ComparedMethod, size: RunSize, seed: int
    ) -> None:
        """Run a method under a seed; iterations are added while one more fits into the budget."""
        lake, name = self.suite.lake, record.run_of(method.name, seed)
        self.note(f"{name}: {variant_of(method.recipe).summary}: {size}")
        own = _overrides(method.trials[method.chosen or 0].settings)
        config = self._config(method.recipe, seed, *own, *size.overrides(points=POINTS))
        iterations = max(size.iterations, _course(lake, name)[0])
        while True:
            longer = config.model_copy(update={"iterations": iterations})
            done = self._work(Job(config=longer, lake=lake, name=name))
            if not done or size.method or not _has_room(lake, name, record.budget):
                return
            iterations += 1

    def _work(self, job: Job) -> bool:
        """Work on a job; return whether it came to its end, and did not end early."""
        try:
            self.turn(job)
        except (NothingToTrainOn, Regressed, AlarmStopError) as end:
            self.note(f"{job.name}: {end}")
            return False
        return True


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


def _overrides(values: Mapping[str, object]) -> list[Override]:
    return [Override(source=SOURCE, path=path, value=value) for path, value in values.items()]


def _score_trials(lake: Path, trials: Sequence[TriedSettings]) -> tuple[TriedSettings, ...]:
    """Return trials with the score of the last policy of each, all by the first shared figure."""
    measured = [_measure_trial(lake, trial) for trial in trials]
    figure = next((f.name for f in USUAL if all(f.name in of for _, of in measured if of)), "")
    return tuple(
        replace(trial, figure=figure, score=fmean(own.values()), prompts=len(own), reason="")
        if (own := of.get(figure))
        else trial
        for trial, of in measured
    )


def _measure_trial(
    lake: Path, trial: TriedSettings
) -> tuple[TriedSettings, Mapping[str, Mapping[str, float]]]:
    """Return a trial with its tokens, and its last policy's values on dev prompts by figure."""
    with opened_run(lake, trial.run) as run:
        if run is None:
            return replace(trial, reason="it was not run"), {}
        cost = sum((unit.cost for unit in spent_units(run.journal)), TokenCost())
        scores = measured_scores(run).filter(pl.col("benchmark") == DEV, pl.col("iteration") > 0)
        metrics = measured_metrics(scores)
        found = {figure.name: values_of(scores, figure, metrics) for figure in USUAL}
        told = replace(
            trial,
            policy_tokens=cost.policy_tokens,
            judge_tokens=cost.judge_tokens,
            reason=ending(run.journal) or "it has not ended",
        )
    return told, {name: of[max(of)] for name, of in found.items() if of}


def _course(lake: Path, name: str) -> tuple[int, list[SpentUnit]]:
    """Return how many iterations a run has made, and the units that it has spent on."""
    with opened_run(lake, name) as run:
        if run is None:
            return 0, []
        made = max((policy.iteration for policy in checkpoints(run)), default=0)
        return made, list(spent_units(run.journal))


def _has_room(lake: Path, name: str, budget: TokenBudget) -> bool:
    """Whether an iteration that costs as much as the last one would still be within the budget."""
    made, units = _course(lake, name)
    last = [unit for unit in units if unit.iteration == made]
    return made > 0 and budget.holds(sum((unit.cost for unit in [*units, *last]), TokenCost()))
