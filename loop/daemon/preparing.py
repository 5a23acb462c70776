"""The models that a method begins with, made by recipes one after another: `lpfloop prepare`.

Each is a run of the lake, named after its recipe, and the next one starts from its result. Finished
runs are not repeated, and all of them are rehearsed before the first one sends a request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...configs.describe import every_field
from ...configs.load import Override, load_config, parse_set
from ...configs.schema import ConfigError
from ...stores.lake import CHECKPOINTS
from ..recipes import recipe_entry
from ..run.stop import NothingToTrainOn
from .job import Job
from .planning import dry_plan
from .suite import Suite, made_model, overrides, work_on

LESSONS = "reflective-sft"
REWARD = "task-reward"
PREPARED: Mapping[str, tuple[str, ...]] = {"rlrf": (LESSONS, REWARD)}
"""The recipes that make the models that a method begins with: M_0, which is the critic, and the
reward.
"""
POLICY, RECIPE = "policy.model", "recipe."
MEANT_FOR: Mapping[str, str] = {"critic.model": LESSONS, "annotation.": REWARD}
"""Settings that one recipe alone takes: the teacher is not called after its lessons."""


def prepared_recipes(method: str) -> tuple[str, ...]:
    """Return the recipes that prepare a method, in the order in which they run.

    Raises:
        ConfigError: if the method does not need preparation.
    """
    if method not in PREPARED:
        raise ConfigError(
            f"prepare {method}: choose smol (a model) or {', '.join(PREPARED)} (a method); every "
            "other method starts from a model as it is: `lpfloop run --policy MODEL`"
        )
    return PREPARED[method]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The results: the name of M_0, which is also the critic, and the folder of the reward."""

    policy: str
    reward: str


def prepare(suite: Suite, turn: Callable[[Job], None], note: Callable[[str], None]) -> Prepared:
    """Make or continue the models that a method begins with; `turn` works on a job to its end.

    Raises:
        ConfigError: if anything cannot be used: all inputs are read before the first request.
        InputError: if a file cannot be read.
    """
    for recipe in suite.recipes:
        try:
            # The last recipe would refuse settings after the first ones were paid.
            dry_plan(_job(suite, recipe))
        except ConfigError as error:
            raise ConfigError(f"{recipe}: {error}") from error
    policy: str | None = None
    for recipe in suite.recipes:
        job = _job(suite, recipe, policy)
        note(f"{job.name}: {recipe_entry(recipe).summary}")
        if isinstance(end := work_on(job, turn, note), NothingToTrainOn):
            raise end
        if recipe == LESSONS:
            policy = made_model(suite.lake, job.name, CHECKPOINTS)
    return Prepared(
        policy=f"{suite.prefix}-{LESSONS}:M_1",
        reward=made_model(suite.lake, f"{suite.prefix}-{REWARD}", "reward_models"),
    )


def _job(suite: Suite, recipe: str, policy: str | None = None) -> Job:
    """Return the job of a recipe, which starts from `policy` if it is given."""
    own = {"iterations": 1, **({} if policy is None else {POLICY: policy})}
    layers = [*_fitting(suite.overrides, recipe, suite.recipes), *overrides("prepare", own)]
    config = load_config(suite.config, recipe, layers, suite.env)
    return Job(config=config, lake=suite.lake, name=f"{suite.prefix}-{recipe}")


def _fitting(
    layers: Sequence[str | Override], recipe: str, recipes: Sequence[str]
) -> Iterator[str | Override]:
    """Yield the overrides that apply to a recipe, without settings of other recipes."""
    for item in layers:
        path = (parse_set(item) if isinstance(item, str) else item).path
        having = {other for other in recipes if _has(other, path)}
        having |= {other for start, other in MEANT_FOR.items() if path.startswith(start)}
        if not having or recipe in having:
            yield item


def _has(recipe: str, path: str) -> bool:
    """Whether a recipe has a setting of this path, or a part; all have the others."""
    own = (field.path for field in every_field() if field.recipe == recipe)
    return path.startswith(RECIPE) and any(f"{name}.".startswith(f"{path}.") for name in own)
