"""Methods at equal tokens: the same trials for each, then runs that all have the same budget.

Of each method so many settings are tried, at a seed of their own and for a share of the budget;
the dev prompts alone choose among them. What a trial's units cost sizes the runs that are
compared: one a seed, each with the whole budget. No run takes units over from another, as each is
to be paid for by itself. Where every method begins, whom it may ask, and what is measured is as
the first variant has it.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ...configs.load import Override, semantic
from ...configs.own_function import names_function
from ...configs.schema import ConfigError
from ...configs.variants import short_name
from ...policies.engines.engine import EngineError
from ...stores.journal_reader import JOURNAL
from ...stores.lake import RunReader, run_folder
from ..evaluation.method_outcomes import MethodOutcome
from ..evaluation.token_course import (
    TokenBudget,
    TokenCost,
    TokenCourse,
    spent_units,
    token_course,
)
from ..lake.query.model_names import checkpoints
from ..lake.query.runs import open_run
from ..recipes import RECIPES, variant_of
from ..run.outcomes import NothingToTrainOn
from .equal_config import alike, equal_config
from .equal_record import ComparedMethod, EqualRecord, read_record, require_same, write_record
from .equal_sizes import POINTS
from .equal_trials import Note, Trying, Turn, planned_trials, require_judges, tried, worked
from .job import Job
from .rehearsal import RehearsalError
from .suite import ALL, Suite
from .trials import TRIALS, trials_of

TRIAL_SEED = 1000
"""So far behind the first compared seed lies that of the trials: seeds may be added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualSuite:
    """A suite whose arms all get the same budget of generated tokens, and so many trials."""

    suite: Suite
    budget: TokenBudget
    trials: int


def compared_methods(text: str) -> list[str]:
    """Return the recipes of a list with commas; `all` are those with trials.

    Raises:
        ConfigError: for a name that is none, or a recipe that no budget of tokens makes comparable.
    """
    named = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if named == [ALL]:
        named = list(TRIALS)
    unknown = [name for name in named if not (name in RECIPES or names_function(name))]
    if unknown or not named:
        wrong = f"there is no recipe {unknown[0]!r}; " if unknown else ""
        raise ConfigError(
            f"--variants {text}: {wrong}write {ALL}, or some of {', '.join(TRIALS)}, or "
            "./FILE.py:NAME, with commas"
        )
    return named


def run_equal(equal: EqualSuite, recipes: Sequence[str], turn: Turn, note: Note) -> EqualRecord:
    """Try each method's settings, run all methods under all seeds, and return what was decided.

    `turn` works on a job to its end; what it raises ends the comparison, which the same call
    continues. A method that has nothing to train on keeps no other from running.

    Raises:
        ConfigError: before anything is run, if the budget holds no trial, or nothing can be chosen.
    """
    suite = equal.suite
    shared = alike(equal_config(suite, recipes[0], suite.seeds[0]))
    record = decided(equal, recipes, shared)
    trying = _trying(equal, record.trial_seed, shared)
    write_record(suite.lake, record)
    for method in record.methods:
        record = record.having(tried(trying, method, turn, note))
        write_record(suite.lake, record)
    for seed in suite.seeds:
        for method in record.methods:
            if method.size is not None:
                _compared(equal, record, method, seed, shared, turn, note)
    return record


def decided(equal: EqualSuite, recipes: Sequence[str], shared: Sequence[Override]) -> EqualRecord:
    """Return the comparison as it was begun; or as it begins, with its trials and their sizes.

    Raises:
        ConfigError: as `run_equal`, or if it was begun otherwise.
    """
    suite, budget = equal.suite, equal.budget
    for recipe in recipes:
        trials_of(recipe, equal.trials)
    known = read_record(suite.lake, suite.prefix)
    trial_seed = suite.seeds[0] + TRIAL_SEED if known is None else known.trial_seed
    wanted = EqualRecord(
        name=suite.prefix,
        budget=budget,
        trials=equal.trials,
        trial_seed=trial_seed,
        seeds=suite.seeds,
        settings={r: semantic(equal_config(suite, r, trial_seed, shared)) for r in recipes},
        methods=tuple(ComparedMethod(name=short_name(r), recipe=r, trials=()) for r in recipes),
    )
    if known is not None:
        require_same(known, wanted)
        return replace(known, seeds=suite.seeds)
    trying = _trying(equal, wanted.trial_seed, shared)
    try:
        planned = [planned_trials(trying, recipe) for recipe in recipes]
    except (RehearsalError, EngineError) as error:
        raise ConfigError(str(error)) from error
    require_judges(budget, [cost for _, cost in planned])
    return replace(wanted, methods=tuple(method for method, _ in planned))


def outcomes_of(lake: Path, record: EqualRecord) -> list[MethodOutcome]:
    """Return what each method came to, of the seeds under which all of them are over.

    A method that has no run yet, or none that was measured, is left out.
    """
    courses = {method.name: _courses(lake, record, method.name) for method in record.methods}
    begun = {name: by_seed for name, by_seed in courses.items() if by_seed}
    shared = set(record.seeds).intersection(*begun.values())
    return [
        MethodOutcome(
            method=name,
            budget=record.budget,
            courses=tuple(course for seed, course in by_seed.items() if seed in shared),
        )
        for name, by_seed in begun.items()
        if shared
    ]


def _courses(lake: Path, record: EqualRecord, method: str) -> dict[int, TokenCourse]:
    """Return the courses of a method's runs that are over and were measured, by seed."""
    found = dict[int, TokenCourse]()
    for seed in record.seeds:
        name = record.run_of(method, seed)
        if (run_folder(lake, name) / JOURNAL).exists():
            with closing(open_run(lake, name)) as run:
                course = token_course(run, method) if _is_over(run) else None
            if course is not None and course.points:
                found[seed] = course
    return found


def _is_over(run: RunReader) -> bool:
    """Whether a run has ended by itself: with its iterations, or with nothing to train on."""
    ended = [str(how) for how in run.journal.events("end")[-1:]]
    return any(how.startswith(("done", NothingToTrainOn.__name__)) for how in ended)


def _trying(equal: EqualSuite, seed: int, shared: Sequence[Override]) -> Trying:
    return Trying(
        suite=equal.suite, budget=equal.budget, count=equal.trials, seed=seed, shared=shared
    )


def _compared(
    equal: EqualSuite,
    record: EqualRecord,
    method: ComparedMethod,
    seed: int,
    shared: Sequence[Override],
    turn: Turn,
    note: Note,
) -> None:
    """Run a method under a seed; where less was spent than expected, iterations are added."""
    suite, size, name = equal.suite, method.size, record.run_of(method.name, seed)
    if size is None:
        return
    note(f"{name}: {variant_of(method.recipe).summary}: {size}")
    over = [*shared, *method.settings, *size.overrides(points=POINTS)]
    config = equal_config(suite, method.recipe, seed, over)
    iterations = max(size.iterations, _iterations(suite.lake, name))
    while True:
        longer = config.model_copy(update={"iterations": iterations})
        if not worked(Job(config=longer, lake=suite.lake, name=name), turn, note):
            return
        if size.method or not _has_room(suite.lake, name, equal.budget):
            return
        iterations += 1


def _iterations(lake: Path, name: str) -> int:
    """Return how many iterations a run has made."""
    if not (run_folder(lake, name) / JOURNAL).exists():
        return 0
    with closing(open_run(lake, name)) as run:
        return max((policy.iteration for policy in checkpoints(run)), default=0)


def _has_room(lake: Path, name: str, budget: TokenBudget) -> bool:
    """Whether an iteration that costs as much as the last one would still be within the budget."""
    with closing(open_run(lake, name)) as run:
        units, made = list(spent_units(run.journal)), checkpoints(run)
    if not units or made[-1].iteration == 0:
        return False
    last = sum((u.cost for u in units if u.iteration == made[-1].iteration), TokenCost())
    return budget.holds(sum((unit.cost for unit in units), last))
