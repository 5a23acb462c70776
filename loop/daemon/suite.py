"""Several recipes from the same start, so that they can be compared.

For each seed the supervised model comes first, if requested: it is M_0 of all others. Then, for
methods that learn from comparisons, the preferences and the reward model, once. The others fork
that run, or else the first, and so take over every unit that they share with it. The measurements
and the judges are the same for all.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ...configs.describe import settable
from ...configs.load import ConfigSource, Override, load_config
from ...configs.own_function import names_function
from ...configs.recipe_names import short_name
from ...configs.schema import ConfigError, RunConfig
from ...stores.lake import CHECKPOINTS, REWARD_MODELS
from ..lake.query.model_names import checkpoints
from ..lake.query.runs import open_run
from ..recipes import RECIPES, recipe_entry
from ..run.stop import AlarmStopError, NothingToTrainOn, Regressed
from .control import resolved_values
from .job import Job

SUPERVISED, REWARD = MAKERS = "sft", "reward-model"
ALL = "all"
SHARED = ("annotation.", "assessment.")
"""The settings that all recipes take over from the first: the annotators and the measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Which recipes to run with which seeds; `overrides` are the user's."""

    config: ConfigSource | None
    recipes: tuple[str, ...]
    seeds: tuple[int, ...]
    lake: Path
    prefix: str
    overrides: tuple[str | Override, ...]
    env: Mapping[str, str]

    def name(self, recipe: str, seed: int) -> str:
        """Return the name of the run of a recipe under a seed."""
        return f"{self.prefix}-{short_name(recipe)}-{seed}"

    def load(self, recipe: str, option: str, own: Mapping[str, object]) -> RunConfig:
        """Return a recipe's configuration; `own`, which `option` sets, overrides the user's."""
        given = (*self.overrides, *overrides(option, own))
        return load_config(self.config, recipe, given, self.env)


def chosen_recipes(text: str) -> tuple[str, ...]:
    """Return the recipes of a list with commas, in the order in which they run.

    The supervised model comes first, then the reward model of all others.

    Raises:
        ConfigError: for an unknown name.
    """
    named = named_recipes(text, [name for name, recipe in RECIPES.items() if recipe.compared])
    return (*({SUPERVISED} & {*named}), REWARD, *(name for name in named if name not in MAKERS))


def named_recipes(text: str, every: Sequence[str]) -> list[str]:
    """Return the recipes of a list with commas; `all` means `every`.

    Raises:
        ConfigError: for an unknown recipe.
    """
    named = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if named == [ALL]:
        return [*every]
    unknown = [name for name in named if not (name in RECIPES or names_function(name))]
    if unknown or not named:
        wrong = f"there is no recipe {unknown[0]!r}; " if unknown else ""
        raise ConfigError(
            f"--recipes {text}: {wrong}write {ALL}, or some of {', '.join(RECIPES)}, or "
            "./FILE.py:NAME, with commas"
        )
    for name in named:
        recipe_entry(name)
    return named


def run_suite(suite: Suite, turn: Callable[[Job], None], note: Callable[[str], None]) -> list[str]:
    """Run or resume every recipe under every seed; return the runs that had rows to train on.

    A recipe without such rows, or that stops since its policy got worse, keeps no other from
    running.
    """
    names, lake = list[str](), suite.lake
    for seed in suite.seeds:
        shared, first = dict[str, object](), None
        for recipe in suite.recipes:
            own = {"seed": seed, **shared}
            if {*MAKERS} & {*suite.recipes}:  # Each prompt serves the same purpose in all runs.
                own["prompts.parts.layout"] = "disjoint"
            if recipe in MAKERS:  # They optimise no policy by a reward, and refuse the margin.
                own |= {"iterations": 1, "prompts.variance.margin": None}
            config, name = suite.load(recipe, "--recipes", own), suite.name(recipe, seed)
            note(f"{name}: {recipe_entry(recipe).summary}")
            job = Job(config=config, lake=lake, name=name)
            end = work_on(job if job.has_begun else replace(job, fork=first), turn, note)
            if not isinstance(end, NothingToTrainOn):
                names.append(name)
            elif recipe in MAKERS:
                raise end
            if not shared:
                shared |= shared_settings(config, SHARED)
            if recipe == SUPERVISED:
                shared["policy.model"] = made_model(lake, name, CHECKPOINTS)
                continue
            if recipe == REWARD:
                shared["reward.model"] = made_model(lake, name, REWARD_MODELS)
            first = first or name
    return names


def work_on(
    job: Job, turn: Callable[[Job], None], note: Callable[[str], None]
) -> NothingToTrainOn | Regressed | AlarmStopError | None:
    """Work on a job of several; return what ended it early, None if it came to its end.

    An error of `turn`, which works on a job to its end, ends all jobs; the same call continues.
    """
    try:
        turn(job)
    except (NothingToTrainOn, Regressed, AlarmStopError) as end:
        note(f"{job.name}: {end}")
        return end
    return None


def shared_settings(config: RunConfig, paths: tuple[str, ...]) -> dict[str, object]:
    """Return a run's settings below these paths, without secrets, for the other runs."""
    known = [f.path for f in settable() if f.path.startswith(paths) and not f.secret]
    return {**resolved_values(config, known)}


def overrides(source: str, values: Mapping[str, object]) -> list[Override]:
    """Return settings by their paths as overrides that an option is the source of."""
    return [Override(source=source, path=path, value=value) for path, value in values.items()]


def made_model(lake: Path, name: str, table: str) -> str:
    """Return the folder of the model that a run has made last; `table` is the table of its kind."""
    with closing(open_run(lake, name)) as run:
        rows = run.scan(table).sort("iteration").select("path").collect()
        path = checkpoints(run)[-1].path if table == CHECKPOINTS else str(rows.item(-1, 0))
    return str((run.folder / path).resolve())
