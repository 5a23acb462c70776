"""Refuse settings of judges and pools of models that would change nothing in a run.

Checked are `completion.*`, `grading.*`, `annotation.*` and the settings of several critiques, if
they were given by `--set`, or by `set` in Python. A file may have settings for several recipes, and
so may the options of a suite.
"""

from collections.abc import Iterable

from ...configs.grouped_recipes import Grouped
from ...configs.schema import ConfigError, RunConfig
from ..run.completers import grades
from ..run.models import is_rewarded
from ..run.panel import Panels

TRAINING_ALONE = ("flip_probability", "keyed_on", "comparisons", "drop_cycles")
"""Settings of annotators that evaluation has no use for."""


BY_PEOPLE = "annotation.source names people's comparisons, and no annotators are asked in training"


def require_useful(config: RunConfig, given: Iterable[str]) -> None:
    """Refuse settings, by their dotted paths, that the run would not look at.

    Raises:
        ConfigError: naming the setting, and why it would change nothing.
    """
    for path in given:
        section, _, name = path.partition(".")
        if reason := _idle(config, section, name) or _idle_critic(config, section, name):
            raise ConfigError(f"{path} would change nothing: {reason}; leave it out")


def _idle(config: RunConfig, section: str, name: str) -> str | None:
    """Return why a setting would change nothing, if it would."""
    rewarded = f"with reward.model {config.reward.model} nothing is compared or graded"
    match section:
        case "completion" if config.annotation.source:
            return "with annotation.source the answers are those that people compared"
        case "completion" | "grading" if is_rewarded(config):
            return rewarded
        case "grading" if not grades(config):
            return f"the recipe {config.recipe.name} has nothing graded"
        case "annotation" if name != "source":
            return _idle_annotation(config, name)
        case "recipe" if config.annotation.source and name == "n":
            return BY_PEOPLE
        case _:
            return None


def _idle_critic(config: RunConfig, section: str, name: str) -> str | None:
    if section == "critic" and isinstance(config.recipe, Grouped) and name == "samples":
        return f"{config.recipe.name} asks for one critique of each answer"
    return None


def _idle_annotation(config: RunConfig, name: str) -> str | None:
    panels, recipe = Panels.of(config), config.recipe.name
    compares = f"the recipe {recipe} compares no answers"
    if config.annotation.source:
        if name == "drop_cycles":
            return None
        compares = BY_PEOPLE
    elif is_rewarded(config):
        compares = f"with reward.model {config.reward.model} {compares}"
    if not panels.roles:
        return f"{compares}, and assessment.reference names none to evaluate against"
    if name in TRAINING_ALONE and panels.training is None:
        return f"{compares}, and evaluation has no use for it"
    role = name.partition(".")[0]
    if role in ("strong", "medium", "weak") and role not in panels.roles:
        return f"no annotator of the pool {config.annotation.pool} is made of the {role} model"
    return None
