"""The models that complete a run's prompts, and their principles, read before the run begins."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...configs.recipe_names import recipe_classes
from ...configs.recipes import Completed, Pooled
from ...configs.schema import CompletionConfig, ConfigError, RunConfig
from ...configs.secrecy import hide_secrets_of
from ...stores.keys import Json
from ..data.principles import Mix, load_mix
from .judge_panel import annotates
from .model_pool import ModelPool, PoolModel, load_pool
from .models import is_rewarded

DEFAULT = CompletionConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completers:
    """The models of a pool and the mix of their principles; None as mix for no principles."""

    pool: ModelPool
    mix: Mix | None

    @property
    def others(self) -> tuple[PoolModel, ...]:
        """The models except the policy."""
        return tuple(model for model in self.pool.models if not model.is_policy)

    def mix_of(self, model: PoolModel) -> Mix | None:
        """Return the mix of principles for a model, if it gets any."""
        return None if model.principles == "none" else self.mix

    @property
    def digests(self) -> Mapping[str, Json]:
        """The settings that can change a completion, except the models' weights."""
        return {
            "models": {
                model.name: model.model_dump(
                    mode="json", include={"weight", "principles", "sampling"}
                )
                for model in self.pool.models
            },
            "principles": None if self.mix is None else self.mix.digest,
        }


def grades(config: RunConfig) -> bool:
    """Whether a run's recipe has completions graded."""
    return isinstance(config.recipe, Pooled) and not is_rewarded(config)


def completes(config: RunConfig) -> bool:
    """Whether a run's recipe uses a pool of models: to have answers graded, or compared.

    Without a named pool, the policy's own samples are compared.
    """
    named = config.completion.pool != DEFAULT.pool
    return grades(config) or (annotates(config) and named)


def completers_of(config: RunConfig) -> Completers | None:
    """Read the pool and the mix of a run that completes prompts by a pool; None for any other.

    Raises:
        ConfigError: if a file cannot be used, a model of the pool lacks a place, or a setting
            does not apply to this recipe.
    """
    _require_use(config)
    if not completes(config):
        return None
    pool = load_pool(config.completion.pool)
    mix = load_mix(config.completion.principles) if grades(config) else None
    unplaced = [model.name for model in pool.models if model.model is None]
    if unplaced:
        raise ConfigError(
            f"completion.pool: the pool {pool.name} lacks a place for {', '.join(unplaced)}: write "
            "a pool that extends it, and give each a folder or an OpenAI-compatible URL as its "
            "'model', or the weight 0"
        )
    for model in pool.models:
        hide_secrets_of(model)
    return Completers(pool=pool, mix=mix)


def _require_use(config: RunConfig) -> None:
    """Refuse settings that the recipe does not read, such as principles or a pool."""
    changed = config.completion.model_dump(exclude_defaults=True)
    if isinstance(config.recipe, Pooled):
        return
    if isinstance(config.recipe, Completed):
        changed.pop("pool", None)
        why, kind = "gives its models no principles", Pooled
    else:
        why, kind = "asks the policy alone", Pooled if "principles" in changed else Completed
    if changed:
        able = ", ".join(
            sorted(n for n, other in recipe_classes().items() if issubclass(other, kind))
        )
        raise ConfigError(
            f"{' and '.join(f'completion.{name}' for name in changed)}: unused, as "
            f"{config.recipe.name} {why}; leave it out, or choose one of {able}"
        )
