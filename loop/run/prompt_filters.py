"""The filters of a run's prompts, read from its configuration before the run begins."""

from dataclasses import dataclass
from typing import Self

from ...configs.engines import EngineConfig
from ...configs.judging import RuleFilters
from ...configs.recipe_names import recipe_classes
from ...configs.recipes import Varied
from ...configs.schema import ConfigError, RunConfig
from ...critics.quality.prompt_review import Reviewer
from ..data.prompt_rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The rules and the reviewer; None without a model that judges prompts."""

    rules: Rules
    reviewer: Reviewer | None

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """Load the configured filters.

        Raises:
            ConfigError: if one of them cannot be used.
        """
        rules, quality = config.prompts.rules, config.prompts.quality
        _refuse_without_effect(config)
        return cls(
            rules=Rules.from_config(rules),
            reviewer=Reviewer.from_config(quality) if quality.judge == "model" else None,
        )


def _refuse_without_effect(config: RunConfig) -> None:
    """Refuse filter settings without an effect.

    Raises:
        ConfigError: naming the field, and the setting that it needs.
    """
    quality = config.prompts.quality
    if quality.judge == "model" and quality.model is None and quality.engine != EngineConfig():
        raise ConfigError(
            "prompts.quality.engine is set, but the critic's model and engine judge prompts; set "
            "prompts.quality.model, too"
        )
    if quality.judge == "model" and quality.per_intention and quality.intentions is None:
        raise ConfigError(
            f"prompts.quality.per_intention is {quality.per_intention}, which needs classes; set "
            "prompts.quality.intentions to general, or to a YAML file"
        )
    recipe, margin = config.recipe, config.prompts.variance.margin
    if margin is not None and not isinstance(recipe, Varied):
        able = ", ".join(
            sorted(n for n, kind in recipe_classes().items() if issubclass(kind, Varied))
        )
        raise ConfigError(
            f"prompts.variance.margin is {margin}, but {recipe.name} optimises no policy by a "
            f"reward, so that nothing is filtered; leave it out, or choose one of {able}"
        )


EVERYTHING = Filters(rules=Rules(config=RuleFilters()), reviewer=None)
"""The filters of a run that keeps all prompts."""
