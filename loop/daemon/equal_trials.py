"""The trials of a comparison at equal tokens: their sizes, their work, which of them is chosen."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import cast

import polars as pl

from ...configs.load import Override
from ...configs.schema import ConfigError, RunConfig
from ...configs.variants import short_name
from ...stores.journal_reader import JOURNAL
from ...stores.lake import run_folder
from ...stores.records import Prompt
from ..data.splits import DEV, TRAIN
from ..evaluation.compare_runs import measured_scores
from ..evaluation.token_course import TokenBudget, TokenCost, spent_units
from ..lake.query.figures import measured_metrics
from ..lake.query.policy_figures import USUAL, values_of
from ..lake.query.runs import ending, open_run
from ..run.outcomes import AlarmStopError, NothingToTrainOn, Regressed
from .equal_config import SOURCE, equal_config
from .equal_record import ComparedMethod, TriedSettings, as_overrides
from .equal_sizes import (
    UnitCost,
    final_size,
    measured_cost,
    planned_cost,
    planning_size,
    require_room,
    trial_size,
)
from .exams import deciding
from .job import Job
from .loop import required_prompts
from .opening import rehearsed, required_roles
from .planning import require_folders
from .suite import Suite
from .trials import told_trial, trial_overrides, trials_of

Turn = Callable[[Job], None]
Note = Callable[[str], None]
UNEXAMINED = (
    Override(source=SOURCE, path="prompts.evaluated", value=1),
    Override(source=SOURCE, path="assessment.kl", value=False),
)
"""A trial's policies have no held-out exam to speak of: nobody may choose by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """What all trials of a comparison share: the suite, the budget, their seed, what is alike."""

    suite: Suite
    budget: TokenBudget
    count: int
    seed: int
    shared: Sequence[Override]

    def config(self, recipe: str, over: Sequence[Override] = ()) -> RunConfig:
        """Return the configuration of a trial."""
        return equal_config(self.suite, recipe, self.seed, [*self.shared, *over])


def planned_trials(trying: Trying, recipe: str) -> tuple[ComparedMethod, UnitCost]:
    """Return a method with its trials, sized by what their units may cost at most.

    Raises:
        ConfigError: if the budget holds no trial, or there are no dev prompts.
        RehearsalError: if the recipe fails.
    """
    suite, name, base = trying.suite, short_name(recipe), trying.config(recipe)
    prompts = required_prompts(base, suite.lake)
    _require_dev(base, prompts)
    trained = sum(prompt.split == TRAIN for prompt in prompts)
    trials, costs = list[TriedSettings](), list[UnitCost]()
    for number, trial in enumerate(trials_of(recipe, trying.count), start=1):
        settings = trial_overrides(trial, base)
        size = planning_size(trying.config(recipe, settings))
        config = trying.config(recipe, [*settings, *size.overrides()])
        run = f"{suite.prefix}-trial-{name}-{number}"
        job = Job(config=config, lake=suite.lake, name=run)
        seen = rehearsed(job, prompts).seen
        require_folders(config, seen)
        required_roles(job, seen)
        cost = planned_cost(config, prompts, suite.lake, size)
        fitted = trial_size(cost, trying.budget, size.method, trained)
        require_room(fitted, recipe, cost, trying.budget)
        told = tuple((each.path, cast("float | str", each.value)) for each in settings)
        trials.append(TriedSettings(run=run, settings=told, size=fitted))
        costs.append(cost)
    return ComparedMethod(name=name, recipe=recipe, trials=tuple(trials), trained=trained), costs[0]


def tried(trying: Trying, method: ComparedMethod, turn: Turn, note: Note) -> ComparedMethod:
    """Return a method with its trials' scores, the settings chosen, and the size of its runs.

    Its trials are worked on first, as far as they are not done.
    """
    if method.size is not None or method.left_out:
        return method
    lake = trying.suite.lake
    for trial in method.trials:
        note(f"{trial.run}: trial of {method.recipe}, {trial.size}: {told_trial(trial.settings)}")
        over = [*as_overrides(trial.settings), *trial.size.overrides(), *UNEXAMINED]
        config = trying.config(method.recipe, over)
        worked(Job(config=config, lake=lake, name=trial.run), turn, note)
    trials = _scored(lake, method.trials)
    scores = {place: t.score for place, t in enumerate(trials) if t.score is not None}
    if not scores:
        left_out = "; ".join(dict.fromkeys(trial.reason for trial in trials))
        note(f"{method.recipe} is left out: no trial came to a policy that was measured")
        return replace(method, trials=trials, left_out=left_out)
    # Of equal ones it is the first: the preset's own before others.
    chosen = max(scores, key=lambda place: (scores[place], -place))
    best = trials[chosen]
    with closing(open_run(lake, best.run)) as run:
        cost = measured_cost(run, best.size)
    size = final_size(cost, trying.budget, best.size, method.trained)
    note(f"{method.recipe}: chosen is {told_trial(best.settings)}; its runs have {size}")
    return replace(method, trials=trials, chosen=chosen, size=size)


def worked(job: Job, turn: Turn, note: Note) -> bool:
    """Work on a job to its end; return whether it came to that, and was not ended before."""
    try:
        turn(job)
    except (NothingToTrainOn, Regressed, AlarmStopError) as end:
        note(f"{job.name}: {end}")
        return False
    return True


def require_judges(budget: TokenBudget, costs: Sequence[UnitCost]) -> None:
    """Refuse a budget for judges where no method asks any.

    Raises:
        ConfigError: saying so.
    """
    if budget.judge_tokens is not None and not any(cost.is_judged for cost in costs):
        raise ConfigError(
            f"--judge-tokens {budget.judge_tokens}: none of these methods asks a judge while it "
            "trains, so nothing would be bounded; leave it out"
        )


def _require_dev(config: RunConfig, prompts: Sequence[Prompt]) -> None:
    if not deciding(config, prompts):
        raise ConfigError(
            "--policy-tokens: the run has no dev prompts to choose the settings of a method by: "
            "set prompts.dev_share, such as 0.05, or prompts.dev; held-out prompts never choose"
        )


def _scored(lake: Path, trials: Sequence[TriedSettings]) -> tuple[TriedSettings, ...]:
    """Return trials with the score of the last policy that each made, all by the same figure."""
    found = [_dev_values(lake, trial.run) for trial in trials]
    figure = next((f.name for f in USUAL if all(f.name in of for of in found if of)), "")
    return tuple(
        _with_score(lake, trial, of.get(figure), figure)
        for trial, of in zip(trials, found, strict=True)
    )


def _dev_values(lake: Path, name: str) -> dict[str, Mapping[str, float]]:
    """Return the values of the last policy on dev prompts, by figure; none if it made none."""
    if not (run_folder(lake, name) / JOURNAL).exists():
        return {}
    with closing(open_run(lake, name)) as run:
        scores = measured_scores(run).filter(pl.col("benchmark") == DEV, pl.col("iteration") > 0)
        metrics = measured_metrics(scores)
        found = {figure.name: values_of(scores, figure, metrics) for figure in USUAL}
    return {name: of[max(of)] for name, of in found.items() if of}


def _with_score(
    lake: Path, trial: TriedSettings, values: Mapping[str, float] | None, figure: str
) -> TriedSettings:
    cost = TokenCost()
    ended = "it was not run"
    if (run_folder(lake, trial.run) / JOURNAL).exists():
        with closing(open_run(lake, trial.run)) as run:
            cost = sum((unit.cost for unit in spent_units(run.journal)), cost)
            ended = ending(run.journal) or "it has not ended"
    measured = replace(trial, policy_tokens=cost.policy_tokens, judge_tokens=cost.judge_tokens)
    if not values:
        return replace(measured, reason=ended)
    return replace(measured, figure=figure, score=fmean(values.values()), prompts=len(values))
