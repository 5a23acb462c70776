"""Whether somebody can reward a group's answers, found before anything is paid."""

from collections.abc import Iterable

from ...configs.grouped_recipes import Grouped
from ...configs.schema import ConfigError, RunConfig
from ...critics.verify import SENTENCE_MATCH, Verifier
from ...stores.records import Prompt
from ..run.models import NO_MODEL


def require_rewarding(config: RunConfig) -> None:
    """Refuse weights of rewards that nobody can give; who is the critic is asked elsewhere.

    Raises:
        ConfigError: naming the weight, and what would help.
    """
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
