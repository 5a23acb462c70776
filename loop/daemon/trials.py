"""What a comparison at equal tokens tries of each method: the first of its recipe's trials."""

from collections.abc import Mapping, Sequence
from typing import cast

from ...configs.load import Override
from ...configs.own_function import names_function
from ...configs.schema import ConfigError, RunConfig
from ..recipes import RECIPES
from ..recipes.trial_settings import OWN, TrialSettings
from .control import resolved_at

SOURCE = "trial"
TRIALS: Mapping[str, tuple[TrialSettings, ...]] = {
    name: variant.trials for name, variant in RECIPES.items() if variant.trials
}
"""The trials of each recipe that makes its policy of what it generates itself."""
MOST = min(map(len, TRIALS.values()))
"""So many trials can be had of every recipe."""


def trial_overrides(trial: TrialSettings, config: RunConfig) -> list[Override]:
    """Return what a trial changes of a configuration that has the preset's own."""
    scaled = {
        path: cast("float", resolved_at(config, path)) * by for path, by in trial.times.items()
    }
    every = {**{path: float(f"{value:.6g}") for path, value in scaled.items()}, **trial.values}
    return [Override(source=SOURCE, path=path, value=value) for path, value in every.items()]


def trials_of(recipe: str, count: int) -> tuple[TrialSettings, ...]:
    """Return the first trials of a recipe; of the user's own there is one, with its settings.

    Raises:
        ConfigError: if the recipe makes no policy of what it generates, or there are too few.
    """
    if names_function(recipe):
        return (OWN,)
    if recipe not in TRIALS:
        raise ConfigError(
            f"--policy-tokens: {recipe} does not make its policy of tokens that it generates, so "
            f"no budget of them makes it comparable; leave it out, or compare some of "
            f"{', '.join(TRIALS)}"
        )
    if count > MOST:
        raise ConfigError(f"--trials {count}: each method has {MOST} settings to try, or fewer")
    return TRIALS[recipe][:count]


def told_trial(settings: Sequence[tuple[str, float | str]]) -> str:
    """Return a trial's settings in words."""
    told = [f"{path}={v:g}" if isinstance(v, float) else f"{path}={v}" for path, v in settings]
    return ", ".join(told) or "the preset's own"
