"""Pools of models that answer prompts, and the principles that the models get.

A pool's file (`configs.pools`) lists `models`, each with a `name` and the fields of `PoolModel`.
Shipped are `policy`, the policy alone at several temperatures; `tiny`, the same for the tiny world;
and `ultrafeedback`, the paper's seventeen models, whose places the user fills in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from ...configs.engines import EngineConfig, SamplingConfig, StopString
from ...configs.pools import Pools
from ...configs.recipe_names import recipe_classes
from ...configs.recipes import Completed, Pooled
from ...configs.schema import ConfigError, RunConfig
from ...configs.secrecy import hide_secrets_of
from ...configs.section import Place, Section
from ...stores.keys import Json
from ..data.principles import Mix, load_mix
from .models import POLICY, completes, grades

POOLS = Pools(folder=Path(__file__).parent / "pools", item="model")


class OwnSampling(Section):
    """A model's own sampling settings; None takes the value of `policy.sampling`."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, strict=True)
    top_k: int | None = Field(default=None, ge=1, strict=True)
    min_p: float | None = Field(default=None, gt=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    stop: tuple[StopString, ...] | None = Field(default=None, max_length=8)


class PoolModel(Section):
    """One model as a pool's file describes it.

    `model` is `policy`, a folder or a URL; None until the user fills it in. `weight` is the
    relative frequency with which the model is drawn, 0 for never. `principles` is the place of a
    principle: in the system message, before the prompt (for templates that take no system
    message), or nowhere. `size` is for readers.
    """

    name: str = Field(min_length=1, max_length=80, pattern=r"^[\w.:-]+$")
    model: Place | None = None
    engine: EngineConfig = EngineConfig()
    weight: float = Field(1.0, ge=0)
    size: str = Field("", max_length=40)
    principles: Literal["system", "prompt", "none"] = "system"
    sampling: OwnSampling = OwnSampling()

    @property
    def is_policy(self) -> bool:
        """Whether this model is the policy as it is when the iteration begins."""
        return self.model == POLICY

    def sampling_of(self, policy: SamplingConfig) -> SamplingConfig:
        """Return the sampling settings of its completions, with defaults from `policy`."""
        return policy.model_copy(update=self.sampling.model_dump(exclude_none=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPool:
    """Models some of which answer each prompt; all of them have a weight above 0."""

    name: str
    models: tuple[PoolModel, ...]

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each model, by its name."""
        return {model.name: model.weight for model in self.models}


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


def load_pool(name_or_path: str) -> ModelPool:
    """Read a shipped pool by its name, or a YAML file by its path; weights of 0 leave models out.

    Raises:
        ConfigError: if the file does not exist or is not a list of models; names the file and the
            line or the field.
    """
    path = POOLS.place(name_or_path)
    models = POOLS.read(path, PoolModel)
    for model in models:
        if model.is_policy and "engine" in model.model_fields_set:
            raise ConfigError(
                f"{path}: model {model.name!r}: the policy runs under policy.engine; remove "
                "'engine' here"
            )
    drawn = tuple(model for model in models if model.weight > 0)
    if not drawn:
        raise ConfigError(f"{path}: all models have the weight 0; give at least one a weight")
    return ModelPool(name=path.stem, models=drawn)
