"""Settings that do not fit a recipe, refused before anything is paid, each with what would help.

What a recipe's models need of this machine is checked elsewhere.
"""

from collections.abc import Iterable
from pathlib import Path

from ...configs.engines import NO_MODEL, WHOLE
from ...configs.recipes import Completed, Grouped, Ranked, Rewarded, SelfJudged, Varied
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...critics.verify import SENTENCE_MATCH, Verifier
from ...policies.engines.engine import EngineError
from ...policies.engines.thinking import INSIDE, begins_inside
from ...policies.trainers.job import ONLINE
from ...stores.records import Prompt
from ..run.models import is_endpoint, locate_model
from ..run.run import Observed


def judges_itself(config: RunConfig) -> bool:
    """Whether an iteration's policy judges its own answers, in the place of the critic."""
    return isinstance(config.recipe, SelfJudged) and config.recipe.judge == "follows"


def require_fitting(config: RunConfig) -> None:
    """Refuse rewards without a source, and a policy that cannot judge its own answers.

    Raises:
        ConfigError: naming the setting, what is wrong with it, and what to do.
    """
    recipe = config.recipe
    if isinstance(recipe, Grouped):
        _require_givers(config, recipe)
    learned = not isinstance(recipe, Completed) and config.reward.model == NO_MODEL
    filtered = isinstance(recipe, Varied) and config.prompts.variance.margin is not None
    if learned and (filtered or isinstance(recipe, Rewarded | Ranked)):
        setting = "prompts.variance.margin" if filtered else "it"
        raise ConfigError(
            f"reward.model is none, the recipe {recipe.name} trains no reward model, and {setting} "
            "needs one: name one by --set reward.model=FOLDER, or a function as ./FILE.py:NAME"
        )
    if isinstance(recipe, SelfJudged):
        _require_own_judge(config)


def require_sampling(config: RunConfig, seen: Observed) -> None:
    """Refuse a recipe that would train on what the policy does not say as it is trained.

    Raises:
        ConfigError: naming the setting.
    """
    methods = {*seen.trainings}
    if ONLINE & methods:
        _require_drawn_online(config)
    policy = config.policy
    elsewhere = is_endpoint(locate_model(policy.model)) or policy.engine.kind == "openai"
    if isinstance(config.recipe, Grouped) and elsewhere:
        raise ConfigError(
            f"policy.model is served at {policy.model}, and {config.recipe.name} trains its "
            "weights: name their folder by --policy FOLDER"
        )
    folder = Path(locate_model(policy.model))
    if methods - ONLINE - {"reward"} and config.training.thought == "none" and folder.is_dir():
        try:
            inside = begins_inside(folder, policy.engine)
        except EngineError as error:
            raise ConfigError(str(error)) from error
        if inside:
            raise ConfigError(f"training.thought=none: {INSIDE.format(folder)}")


def require_verifiable(config: RunConfig, prompts: Iterable[Prompt]) -> None:
    """Refuse to reward by the verifier if it has a verdict on no prompt that is trained on.

    Raises:
        ConfigError: saying what the verifier needs.
    """
    if not isinstance(config.recipe, Grouped) or not config.recipe.rewards.verifier:
        return
    verifier = Verifier(sentence_match=config.facts.judge == SENTENCE_MATCH)
    can = any(verifier.can_verify(prompt) for prompt in prompts if prompt.split == "train")
    if not can and config.critic.verifier is None:
        raise ConfigError(
            f"recipe.rewards.verifier is {config.recipe.rewards.verifier:g}, and the verifier "
            "cannot judge answers to any train prompt: it needs math with a reference, checks, or "
            "critic.verifier=./FILE.py:NAME; else set recipe.rewards.verifier=0"
        )


def _require_givers(config: RunConfig, recipe: Grouped) -> None:
    rewards = recipe.rewards
    if rewards.critic and config.critic.kind == "verifier":
        raise ConfigError(
            f"recipe.rewards.critic is {rewards.critic:g}, and critic.kind is verifier, so the "
            f"recipe {recipe.name} has no critic: set recipe.rewards.verifier in its place and "
            "recipe.rewards.critic=0, or critic.kind=feedback"
        )
    if rewards.reward and config.reward.model == NO_MODEL:
        raise ConfigError(
            f"recipe.rewards.reward is {rewards.reward:g}, and reward.model is none; the "
            f"recipe {recipe.name} trains no reward model: name one by --set "
            "reward.model=FOLDER, or a function as ./FILE.py:NAME"
        )


def _require_own_judge(config: RunConfig) -> None:
    """Refuse a configuration in which the policy cannot judge its own answers."""
    name, policy, critic = config.recipe.name, config.policy.model, config.critic.model
    if config.critic.kind == "verifier":
        raise ConfigError(
            f"critic.kind is verifier, and {name} learns from what the policy says of its own "
            "answers: set critic.kind=feedback; the verifier measures answers in any case"
        )
    if _is_elsewhere(policy, config.policy.engine):
        raise ConfigError(
            f"policy.model is {policy}, served by an endpoint, and {name} trains the policy's "
            "weights: name their folder with --policy"
        )
    if config.policy.sampling.temperature == 0:
        raise ConfigError(
            f"policy.sampling.temperature is 0, so the answers of {name} to a prompt would all be "
            "the same, and there would be nothing to pair: set it above 0"
        )
    if not judges_itself(config):
        return
    if NO_MODEL not in (critic, policy) and locate_model(critic) != locate_model(policy):
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


def _require_drawn_online(config: RunConfig) -> None:
    """Refuse answers that cannot be learned from as a training samples them."""
    name, training = config.recipe.name, config.training
    if config.policy.sampling.temperature == 0:
        raise ConfigError(
            f"policy.sampling.temperature is 0: {name} learns from answers that are drawn at "
            "random; set it above 0"
        )
    for setting, whole in WHOLE.items():
        value: object = getattr(config.policy.sampling, setting)
        if value != whole:
            raise ConfigError(
                f"policy.sampling.{setting} is {value}: {name} learns by the probabilities of all "
                f"tokens, so its answers must be drawn from all of them; leave {setting} out"
            )
    if training.sharding != "none" and training.lora.r:
        raise ConfigError(
            f"training.sharding is {training.sharding}: {name} trains adapters over one body, "
            "which each process holds whole; leave it out, or set training.lora.r to 0"
        )


def _is_elsewhere(model: str, engine: EngineConfig) -> bool:
    """Whether an endpoint serves a model; nothing installed is looked at."""
    return engine.kind == "openai" or (engine.kind == "auto" and is_endpoint(model))
