"""The models that a method begins with, made by recipes one after another: `lpfloop prepare`.

Each is a run of the lake, named after its recipe, and the next one starts from its result. Finished
runs are not repeated, and all of them are rehearsed before the first one sends a request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.describe import every_field
from ...configs.load import ConfigSource, Override, load_config, parse_set
from ...configs.schema import ConfigError
from ..recipes import recipe_entry
from ..run.outcomes import AlarmStopError, Regressed
from .job import Job
from .planning import dry_plan
from .suite import made_model

LESSONS = "reflective-sft"
REWARD = "task-reward"
PREPARED: Mapping[str, tuple[str, ...]] = {"rlrf": (LESSONS, REWARD)}
"""The recipes that make the models that a method begins with: M_0, which is the critic, and the
reward.
"""
POLICY, RECIPE = "policy.model", "recipe."
MEANT_FOR: Mapping[str, str] = {"critic.model": LESSONS, "annotation.": REWARD}
"""Settings that one recipe alone takes: the teacher is not called after its lessons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The method to prepare, its sources, and the lake and the names of the runs that it takes."""

    method: str
    config: ConfigSource | None
    lake: Path
    prefix: str
    overrides: tuple[str | Override, ...]
    env: Mapping[str, str]

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes, in the order in which they run.

        Raises:
            ConfigError: if the method does not need preparation.
        """
        if self.method not in PREPARED:
            raise ConfigError(
                f"prepare {self.method}: choose smol (a model) or {', '.join(PREPARED)} (a "
                "method); every other method starts from a model as it is: `lpfloop run --policy "
                "MODEL`"
            )
        return PREPARED[self.method]

    def name(self, recipe: str) -> str:
        """Return the name of the run of a recipe."""
        return f"{self.prefix}-{recipe}"

    def job(self, recipe: str, policy: str | None = None) -> Job:
        """Return the job of a recipe, which starts from `policy` if it is given.

        Raises:
            ConfigError: if its configuration cannot be used.
        """
        own = list(_fitting(self.overrides, recipe, self.recipes))
        own.append(Override(source="prepare", path="iterations", value=1))
        if policy is not None:
            own.append(Override(source="prepare", path=POLICY, value=policy))
        config = load_config(self.config, recipe, own, self.env)
        return Job(config=config, lake=self.lake, name=self.name(recipe))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The results: the name of M_0, which is also the critic, and the folder of the reward."""

    policy: str
    reward: str


def prepare(
    request: Preparation, turn: Callable[[Job], None], note: Callable[[str], None]
) -> Prepared:
    """Make or continue the models that a method begins with; `turn` works on a job to its end.

    Raises:
        ConfigError: if anything cannot be used: all inputs are read before the first request.
    """
    require_possible(request)
    policy: str | None = None
    for recipe in request.recipes:
        note(f"{request.name(recipe)}: {recipe_entry(recipe).summary}")
        try:
            turn(request.job(recipe, policy))
        except (Regressed, AlarmStopError) as end:
            note(f"{request.name(recipe)}: {end}")
        if recipe == LESSONS:
            policy = made_model(request.lake, request.name(recipe), "checkpoints")
    return Prepared(
        policy=f"{request.name(LESSONS)}:M_1",
        reward=made_model(request.lake, request.name(REWARD), "reward_models"),
    )


def require_possible(request: Preparation) -> None:
    """Refuse settings that the last recipe would refuse after the first ones were paid.

    Raises:
        ConfigError: if a model is missing, or settings do not fit.
        InputError: if a file cannot be read.
    """
    for recipe in request.recipes:
        try:
            dry_plan(request.job(recipe))
        except ConfigError as error:
            raise ConfigError(f"{recipe}: {error}") from error


def _fitting(
    overrides: Sequence[str | Override], recipe: str, recipes: Sequence[str]
) -> Iterator[str | Override]:
    """Yield the overrides that apply to a recipe, without settings of other recipes."""
    for item in overrides:
        path = (parse_set(item) if isinstance(item, str) else item).path
        having = {other for other in recipes if _has(other, path)}
        having |= {other for start, other in MEANT_FOR.items() if path.startswith(start)}
        if not having or recipe in having:
            yield item


def _has(recipe: str, path: str) -> bool:
    """Whether a recipe has a setting of this path, or a part; all have the others."""
    own = (field.path for field in every_field() if field.recipe == recipe)
    return path.startswith(RECIPE) and any(f"{name}.".startswith(f"{path}.") for name in own)
