"""The configuration of a run that is compared at equal tokens: what is alike, and what is not."""

from collections.abc import Mapping, Sequence
from typing import get_args

from ...configs.annotation import INITIAL, Role
from ...configs.describe import settable
from ...configs.load import Override, load_config
from ...configs.recipes import Annotated, Graded
from ...configs.schema import RunConfig
from ..run.models import is_rewarded
from .control import resolved_at
from .equal_sizes import stepped_method
from .suite import Suite

SOURCE = "--policy-tokens"
ALIKE = (
    *("policy.", "critic.", "reward.", "evaluation.", "assessment.", "annotation.", "facts."),
    *("verdict.", "prompts.source", "prompts.held_out", "prompts.turns", "prompts.input"),
    *("prompts.fields", "prompts.task", "prompts.dev", "prompts.skip_bad", "prompts.evaluated"),
    *("prompts.deciding", "prompts.chunk", "guard"),
)
"""What is the same for all methods: where they begin, whom they ask, and what is measured."""
OF_A_METHOD = ("critic.samples",)
"""What is a method's own nevertheless: exams ask the critic once, whatever it says."""
USUALLY = {
    # What is compared is the last policy: nobody chooses on the way, and none goes back.
    "verdict.on_regression": "continue",
    # A run that an alarm stops would have no result, and its method one seed fewer.
    "alarms.on_alarm": "continue",
    "assessment.kl": True,
    # The comparison has a page of its own.
    "report.each_iteration": False,
    # Prompts that a method does not use are not set aside for it.
    "prompts.parts.layout": "used",
}
"""What a comparison sets unless the user does."""
PROPORTION = 1000
"""Sizes of parts are proportions here: an iteration may have more prompts than they add up to."""


def equal_config(suite: Suite, recipe: str, seed: int, over: Sequence[Override] = ()) -> RunConfig:
    """Return the configuration of a method; `over` is laid over what the user says.

    Raises:
        ConfigError: if it is of no use.
    """
    said = [*_overrides(USUALLY), *suite.overrides]
    own = [*over, _override("seed", seed)]
    config = load_config(suite.config, recipe, [*said, *own], suite.env)
    parts = config.prompts.parts
    sizes = {"sft": parts.sft, "preference": parts.preference, "unlabeled": parts.unlabeled}
    said += _overrides({f"prompts.parts.{name}": PROPORTION * n for name, n in sizes.items()})
    if stepped_method(config) and not _makes_its_reward(config):
        # Its steps take what they need of all prompts, as many as other methods may take of.
        said.append(_override("prompts.per_iteration", None))
    return load_config(suite.config, recipe, [*said, *own], suite.env)


def _makes_its_reward(config: RunConfig) -> bool:
    return isinstance(config.recipe, Annotated | Graded) and not is_rewarded(config)


def alike(first: RunConfig) -> list[Override]:
    """Return what all methods take over from the first; with annotators, win-rates against M_0."""
    known = [f.path for f in settable() if f.path.startswith(ALIKE) and not f.secret]
    paths = [path for path in known if path not in OF_A_METHOD]
    shared = [_override(path, resolved_at(first, path)) for path in paths]
    named = all(first.annotation.model_of(role).model for role in get_args(Role))
    if named and first.assessment.reference is None:
        shared.append(_override("assessment.reference", INITIAL))
    return shared


def _overrides(values: Mapping[str, object]) -> list[Override]:
    return [_override(path, value) for path, value in values.items()]


def _override(path: str, value: object) -> Override:
    return Override(source=SOURCE, path=path, value=value)
