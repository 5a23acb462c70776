"""Whether a recipe can learn from answers as they are sampled, found before anything is paid."""

from pathlib import Path

from ...configs.engines import WHOLE
from ...configs.grouped_recipes import Grouped
from ...configs.schema import ConfigError, RunConfig
from ...policies.engines.engine import EngineError
from ...policies.engines.thinking import INSIDE, begins_inside
from ...policies.trainers.job import ONLINE
from ..run.models import is_endpoint, located
from ..run.observed import Observed


def require_sampling(config: RunConfig, seen: Observed) -> None:
    """Refuse a recipe that would train on what the policy does not say as it is trained.

    Raises:
        ConfigError: naming the setting.
    """
    methods = {*seen.trainings}
    if ONLINE & methods:
        _require_chance(config)
        _require_whole(config)
        _require_scored_here(config)
        _require_divisible(config)
    if isinstance(config.recipe, Grouped):
        _require_weights(config)
    if "quark" in methods:
        _require_known_tokens(config)
    if methods - ONLINE - {"reward"}:
        _require_separable(config)


def _require_chance(config: RunConfig) -> None:
    """Refuse to learn from answers that are always the same."""
    if config.policy.sampling.temperature == 0:
        raise ConfigError(
            f"policy.sampling.temperature is 0: {config.recipe.name} learns from answers that are "
            "drawn at random; set it above 0"
        )


def _require_weights(config: RunConfig) -> None:
    """Refuse a policy behind a URL: what such a recipe makes is nothing but a policy."""
    if is_endpoint(located(config.policy.model)) or config.policy.engine.kind == "openai":
        raise ConfigError(
            f"policy.model is served at {config.policy.model}, and {config.recipe.name} trains "
            "its weights: name their folder by --policy FOLDER"
        )


def _require_whole(config: RunConfig) -> None:
    """Refuse to learn online from answers that are not drawn from all that the policy says."""
    for name, whole in WHOLE.items():
        value: object = getattr(config.policy.sampling, name)
        if value != whole:
            raise ConfigError(
                f"policy.sampling.{name} is {value}: {config.recipe.name} learns by the "
                "probabilities of all tokens, so its answers must be drawn from all of them; "
                f"leave {name} out"
            )


def _require_scored_here(config: RunConfig) -> None:
    """Refuse vLLM for a reward model that scores inside the trainer, which shares its device."""
    if config.reward.runner != "transformers":
        raise ConfigError(
            f"reward.runner is {config.reward.runner}: {config.recipe.name} scores answers inside "
            "the trainer, where transformers runs the reward model; leave it out"
        )


def _require_divisible(config: RunConfig) -> None:
    """Refuse to divide the body of an online training's adapters: each process holds it whole."""
    training = config.training
    if training.sharding != "none" and training.lora.r:
        raise ConfigError(
            f"training.sharding is {training.sharding}: {config.recipe.name} trains adapters over "
            "one body, which each process holds whole; leave it out, or set training.lora.r to 0"
        )


def _require_known_tokens(config: RunConfig) -> None:
    """Refuse adapters where new tokens are learned: their rows of the embedding would not be."""
    if config.training.quark.train_on == "all" and config.training.lora.r:
        raise ConfigError(
            "training.quark.train_on is all: the quantiles' tokens are new rows of the embedding, "
            "which adapters do not train; set it to best, or training.lora.r to 0"
        )


def _require_separable(config: RunConfig) -> None:
    """Refuse to train answers alone where the policy's turns begin inside a thought."""
    folder, engine = Path(located(config.policy.model)), config.policy.engine
    if config.training.thought != "none" or not folder.is_dir():
        return
    try:
        inside = begins_inside(folder, engine)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    if inside:
        raise ConfigError(f"training.thought is none: {INSIDE.format(folder)}")
