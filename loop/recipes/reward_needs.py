"""Whether somebody can give the rewards that a recipe goes by, found before anything is paid."""

from collections.abc import Iterable

from ...configs.grouped_recipes import Grouped
from ...configs.recipes import Completed, Ranked, Rewarded, Varied
from ...configs.schema import ConfigError, RunConfig
from ...critics.verify import SENTENCE_MATCH, Verifier
from ...stores.records import Prompt
from ..run.models import NO_MODEL


def require_rewarding(config: RunConfig) -> None:
    """Refuse a recipe that goes by rewards which nobody can give.

    Raises:
        ConfigError: naming the setting, and what would help.
    """
    _require_weighed(config)
    settings = config.recipe
    if isinstance(settings, Completed) or config.reward.model != NO_MODEL:
        return
    if isinstance(settings, Varied) and config.prompts.variance.margin is not None:
        raise ConfigError(
            f"reward.model is none, and the recipe {settings.name} trains no reward model ahead of "
            "its filter: prompts.variance.margin needs one"
        )
    if isinstance(settings, Rewarded | Ranked):
        raise ConfigError(
            f"reward.model is none, and the recipe {settings.name} goes by a reward and trains no "
            "reward model: name one by --set reward.model=FOLDER, or a function as ./FILE.py:NAME"
        )


def _require_weighed(config: RunConfig) -> None:
    """Refuse weights of rewards that nobody can give; who is the critic is asked elsewhere."""
    if not isinstance(config.recipe, Grouped):
        return
    name, rewards = config.recipe.name, config.recipe.rewards
    if rewards.critic and config.critic.kind == "verifier":
        raise ConfigError(
            f"recipe.rewards.critic is {rewards.critic:g}, and critic.kind is verifier, so the "
            f"recipe {name} has no critic: set recipe.rewards.verifier in its place and "
            "recipe.rewards.critic=0, or critic.kind=feedback"
        )
    if rewards.reward and config.reward.model == NO_MODEL:
        raise ConfigError(
            f"recipe.rewards.reward is {rewards.reward:g}, and reward.model is none; the recipe "
            f"{name} trains no reward model: name one by --set reward.model=FOLDER, or a function "
            "as ./FILE.py:NAME"
        )


def require_verifiable(config: RunConfig, prompts: Iterable[Prompt]) -> None:
    """Refuse to reward by the verifier where it has a verdict on no prompt that is trained on.

    Raises:
        ConfigError: saying what the verifier needs.
    """
    if not isinstance(config.recipe, Grouped) or not config.recipe.rewards.verifier:
        return
    verifier = Verifier(sentence_match=config.facts.judge == SENTENCE_MATCH)
    can = any(verifier.can_verify(prompt) for prompt in prompts if prompt.split == "train")
    if not can and config.critic.verifier is None:
        raise ConfigError(
            f"recipe.rewards.verifier is {config.recipe.rewards.verifier:g}, and the verifier has "
            "no verdict on answers to any train prompt: it needs math with a reference, checks, or "
            "critic.verifier=./FILE.py:NAME; else set recipe.rewards.verifier=0"
        )
