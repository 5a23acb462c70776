"""Several variants from the same start, so that they can be compared.

Of each seed the supervised model comes first, if it is asked for: it is M_0 of all others. Then the
preferences and the reward model, once: the others fork that run, and so take over every unit that
they share with it. What is measured, and by whom, is the same for all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.describe import fields
from ...configs.load import ConfigSource, Override, load_config
from ...configs.own_function import names_function
from ...configs.schema import ConfigError, RunConfig
from ...configs.variants import short_name
from ...stores.journal_reader import JOURNAL
from ...stores.lake import CHECKPOINTS, run_folder
from ..evaluation.watch_policy import AlarmStopError
from ..lake.query.model_names import checkpoints
from ..lake.query.runs import open_run
from ..recipes import RECIPES, variant_of
from ..run.outcomes import NothingToTrainOn, Regressed
from .control import resolved_at
from .job import Job

SUPERVISED, REWARD = "sft", "reward-model"
ALL = "all"
SHARED = ("annotation.", "assessment.")
"""The settings that all variants take over from the first: who compares, and what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Which variants to run with which seeds; `overrides` are the user's."""

    config: ConfigSource | None
    variants: tuple[str, ...]
    seeds: tuple[int, ...]
    lake: Path
    prefix: str
    overrides: tuple[str | Override, ...]
    env: Mapping[str, str]

    def name(self, variant: str, seed: int) -> str:
        """Return the name of the run of a variant under a seed."""
        return f"{self.prefix}-{short_name(variant)}-{seed}"

    @property
    def names(self) -> list[str]:
        """The names of all runs that are compared, seed by seed."""
        return [self.name(variant, seed) for seed in self.seeds for variant in self.variants]


def chosen_variants(text: str) -> tuple[str, ...]:
    """Return the variants of a list with commas, in the order in which they run.

    Raises:
        ConfigError: for a name that is none.
    """
    named = [name.strip() for name in text.split(",") if name.strip()]
    if named == [ALL]:
        named = [name for name, variant in RECIPES.items() if variant.compared]
    unknown = [name for name in named if not (name in RECIPES or names_function(name))]
    if unknown or not named:
        known = ", ".join(RECIPES)
        raise ConfigError(
            f"--variants {text}: write {ALL}, or some of {known}, or ./FILE.py:NAME, with commas"
        )
    for name in named:
        variant_of(name)
    first = [SUPERVISED] if SUPERVISED in named else []
    rest = [name for name in dict.fromkeys(named) if name not in (SUPERVISED, REWARD)]
    return (*first, REWARD, *rest)


def run_suite(
    suite: Suite, turn: Callable[[Job], None], note: Callable[[str], None]
) -> dict[str, str]:
    """Run every variant under every seed, or let it go on; return why one made nothing, by run.

    `turn` works on a job to its end; what it raises ends the suite, which the same call continues.
    A variant that has nothing to train on, or stops since its policy got worse, does not keep the
    others from running.
    """
    empty = dict[str, str]()
    for seed in suite.seeds:
        for job in _jobs(suite, seed):
            note(f"{job.name}: {variant_of(job.config.recipe.name).summary}")
            try:
                turn(job)
            except NothingToTrainOn as reason:
                if job.config.recipe.name in (SUPERVISED, REWARD):
                    raise
                empty[job.name] = str(reason)
            except (Regressed, AlarmStopError) as end:
                note(f"{job.name}: {end}")
    return empty


def _jobs(suite: Suite, seed: int) -> Iterator[Job]:
    """Give the jobs of a seed; each is made when those that it builds on have ended."""
    shared = list[Override]()
    fork: str | None = None
    for variant in suite.variants:
        config = _config(suite, variant, seed, shared)
        name = suite.name(variant, seed)
        begun = (run_folder(suite.lake, name) / JOURNAL).exists()
        yield Job(config=config, lake=suite.lake, name=name, fork=None if begun else fork)
        if not shared:
            shared = _measured_alike(config)
        if variant == SUPERVISED:
            shared.append(_override("policy.model", _made(suite.lake, name, "checkpoints")))
        if variant == REWARD:
            shared.append(_override("reward.model", _made(suite.lake, name, "reward_models")))
            fork = name


def _config(suite: Suite, variant: str, seed: int, shared: Sequence[Override]) -> RunConfig:
    # What one variant makes is another's start: each prompt serves the same purpose in all of them.
    own = [_override("seed", seed), _override("prompts.parts.layout", "disjoint"), *shared]
    if variant in (SUPERVISED, REWARD):
        own.append(_override("iterations", 1))
        # A setting for the others that these two, which optimise no policy by a reward, refuse.
        own.append(_override("prompts.variance.margin", None))
    return load_config(suite.config, variant, [*suite.overrides, *own], suite.env)


def _measured_alike(config: RunConfig) -> list[Override]:
    paths = (f.path for f in fields() if f.path.startswith(SHARED) and not f.secret)
    return [_override(path, resolved_at(config, path)) for path in paths]


def _made(lake: Path, name: str, table: str) -> str:
    """Return the folder of the model that a run has made last."""
    run = open_run(lake, name)
    if table == CHECKPOINTS:
        path = checkpoints(run)[-1].path
    else:
        paths = run.scan(table).select("iteration", "path").sort("iteration").collect()
        path = str(paths["path"][-1])
    run.close()
    return str((run.folder / path).resolve())


def _override(path: str, value: object) -> Override:
    return Override(source="--variants", path=path, value=value)
