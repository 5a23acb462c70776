"""Whether the policy can be its own judge as a run is configured, found before anything is paid."""

from ...configs.engines import NO_MODEL
from ...configs.recipes import SelfJudged
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ..run.models import is_endpoint, located


def judges_itself(config: RunConfig) -> bool:
    """Whether an iteration's policy judges its own answers, in the place of the critic."""
    return isinstance(config.recipe, SelfJudged) and config.recipe.judge == "follows"


def require_judge(config: RunConfig) -> None:
    """Refuse a recipe whose policy could not be, or become, the judge of its own answers.

    Raises:
        ConfigError: naming the setting, what is wrong with it, and what to do.
    """
    if not isinstance(config.recipe, SelfJudged):
        return
    _require_graded(config)
    _require_trainable(config)
    _require_varied(config)
    if judges_itself(config):
        _require_own_critic(config)


def _require_graded(config: RunConfig) -> None:
    """Refuse the verifier as the judge: it is no model, and follows none."""
    if config.critic.kind == "verifier":
        raise ConfigError(
            f"critic.kind is verifier, and {config.recipe.name} learns from what the policy says "
            "of its own answers: leave critic.kind out; answers are verified all the same where "
            "they are measured"
        )


def _require_trainable(config: RunConfig) -> None:
    """Refuse a policy whose next weights would not be here to judge."""
    place = config.policy.model
    if _is_elsewhere(place, config.policy.engine):
        where = place if place != NO_MODEL else "an endpoint"
        raise ConfigError(
            f"policy.model: {config.recipe.name} trains the policy and asks what came of it, and "
            f"the weights at {where} cannot be trained here: name their folder with --policy"
        )


def _require_varied(config: RunConfig) -> None:
    """Refuse to draw the same answer n times: none would be better than another."""
    if config.policy.sampling.temperature == 0:
        raise ConfigError(
            f"policy.sampling.temperature is 0, so the answers of {config.recipe.name} to a prompt "
            "would all be the same, and there would be nothing to pair: set it above 0"
        )


def _require_own_critic(config: RunConfig) -> None:
    """Refuse a critic that is not the policy: it would judge nothing that is learned."""
    critic, policy = config.critic.model, config.policy.model
    if NO_MODEL not in (critic, policy) and located(critic) != located(policy):
        raise ConfigError(
            f"critic.model is {critic}, but with recipe.judge=follows the policy is the judge, "
            f"M_0 ({policy}) at first: set recipe.judge=frozen to learn from {critic}, name "
            f"--critic {policy} to have held-out answers rated by M_0, or leave it out"
        )
    if _is_elsewhere(critic, config.critic.engine):
        raise ConfigError(
            "critic.engine: with recipe.judge=follows each iteration's weights judge, and an "
            "endpoint does not serve them: run the critic here, or set recipe.judge=frozen"
        )


def _is_elsewhere(model: str, engine: EngineConfig) -> bool:
    """Whether an endpoint serves a model; nothing installed is looked at."""
    return engine.kind == "openai" or (engine.kind == "auto" and is_endpoint(model))
