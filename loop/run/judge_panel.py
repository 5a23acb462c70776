"""The annotators that compare answers in a run: p_ann, p_eval or p_single (AlpacaFarm, Section 3).

All come from one pool. p_ann, which labels training data, has noise; p_eval, which evaluates
policies, is noiseless; p_single is one annotator at temperature 0, without noise.
"""

from dataclasses import dataclass, replace

from ...configs.annotation import AnnotatorModel, Role
from ...configs.engines import NO_MODEL
from ...configs.recipes import Annotated, TaskReward
from ...configs.schema import ConfigError, RunConfig
from ...critics.annotators.annotator_pool import Annotator, AnnotatorPool, load_pool
from ...stores.keys import Json
from ..data.cycles import require_few_answers
from .models import is_endpoint, is_rewarded

SHIPPED, HOSTED = "alpacafarm", "alpacafarm-hosted"
"""A pool that biases tokens by their text, and its form for endpoints, which cannot do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePanel:
    """Annotators, one of which labels each pair, and the probability that noise flips a label."""

    pool: AnnotatorPool
    flip_probability: float

    @property
    def annotators(self) -> tuple[Annotator, ...]:
        """The annotators, grouped by model, so that each model is loaded once."""
        return tuple(sorted(self.pool.annotators, key=lambda annotator: annotator.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """The panels that compare a run's samples for training, and its answers for evaluation.

    None if the run does not make the comparison.
    """

    training: JudgePanel | None
    evaluation: JudgePanel | None

    @classmethod
    def of(cls, config: RunConfig) -> "Panels":
        """Read the pool of a run, if it compares anything.

        Raises:
            ConfigError: if the pool cannot be used, or lacks the named annotator.
        """
        annotated, assessed = annotates(config), config.assessment.reference is not None
        if not (annotated or assessed):
            return NOBODY
        pool = _as_served(load_pool(config.annotation.pool), config)
        if annotated:
            require_few_answers(config)
        single, noise = config.annotation.single is not None, config.annotation.flip_probability
        by_single = config.assessment.annotators != "pool"
        return cls(
            training=_panel(pool, config, single=single, noise=noise) if annotated else None,
            evaluation=_panel(pool, config, single=by_single, noise=0.0) if assessed else None,
        )

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of the annotators' models."""
        panels = [panel for panel in (self.training, self.evaluation) if panel is not None]
        return tuple(sorted({role for panel in panels for role in panel.pool.roles}))

    @property
    def digests(self) -> Json:
        """The parts of the annotators that can change a comparison."""
        return {
            name: None if panel is None else [panel.pool.digest, panel.flip_probability]
            for name, panel in (("training", self.training), ("evaluation", self.evaluation))
        }


NOBODY = Panels(training=None, evaluation=None)
"""The panels of a run without comparisons."""


def annotates(config: RunConfig) -> bool:
    """Whether a run's recipe learns from comparisons by the annotators of a pool."""
    return compares(config) and not config.annotation.source


def compares(config: RunConfig) -> bool:
    """Whether a run's recipe learns from comparisons, by people or by annotators."""
    recipe = config.recipe
    unweighed = isinstance(recipe, TaskReward) and not recipe.weights.preferred
    return isinstance(recipe, Annotated) and not (unweighed or is_rewarded(config))


def _panel(pool: AnnotatorPool, config: RunConfig, *, single: bool, noise: float) -> JudgePanel:
    """Return the whole pool with its noise, or p_single: one annotator without noise."""
    if not single:
        return JudgePanel(pool=pool, flip_probability=noise)
    if config.annotation.single is None:
        raise ConfigError(
            "assessment.annotators is single, but annotation.single names no annotator of the "
            f"pool {config.annotation.pool}"
        )
    return JudgePanel(pool=pool.only(config.annotation.single), flip_probability=0.0)


def _as_served(pool: AnnotatorPool, config: RunConfig) -> AnnotatorPool:
    """Return the pool without annotators at an endpoint that bias tokens by their text.

    An endpoint cannot look up tokens. From the shipped pool, such an annotator is replaced by
    the one in its form for endpoints.

    Raises:
        ConfigError: if an annotator of another pool would need the replacement.
    """
    hosted = load_pool(HOSTED) if config.annotation.pool == SHIPPED else None
    served = list[Annotator]()
    for annotator in pool.annotators:
        texts = [token for token, _ in annotator.logit_bias if isinstance(token, str)]
        elsewhere = texts and _is_elsewhere(config.annotation.model_of(annotator.model))
        if elsewhere and hosted is None:
            raise ConfigError(
                f"annotation.{annotator.model}.model is an endpoint, which takes the ids of tokens "
                f"only, and annotator {annotator.name} of the pool {pool.name} biases the token "
                f"{texts[0]!r}: name ids instead, or leave logit_bias out"
            )
        named = {} if hosted is None else {other.name: other for other in hosted.annotators}
        served.append(named[annotator.name] if elsewhere else annotator)
    return replace(pool, annotators=tuple(served))


def _is_elsewhere(model: AnnotatorModel) -> bool:
    kind, place = model.engine.kind, model.model or NO_MODEL
    return kind == "openai" or (kind == "auto" and is_endpoint(place))
