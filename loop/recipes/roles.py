"""The models that a run needs, found before anything is paid; a role without a model is refused.

A rehearsal shows a recipe's requests (`Observed`). The configuration adds others: annotators and
graders, judges of prompts, and raters and scorers of held-out answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...configs.engines import NO_MODEL
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies.trainers.job import Method
from ..run.completers import completers_of
from ..run.judges import Panels
from ..run.models import (
    ANNOTATION,
    COMPLETION,
    CRITIC,
    GRADING,
    POLICY,
    QUALITY,
    REWARD,
    SCORING_JUDGE,
    grades,
    place_of,
)
from ..run.run import NOTHING_SEEN, Observed
from ..stages.critique import CRITIQUE
from .refusals import judges_itself

EVALUATE, REVIEW = "evaluate", "review prompts"
PLACE = "FOLDER or URL"
TOY = "; tiny is the shipped toy, which knows the tiny world's prompts alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRole:
    """A model that a run needs.

    `name` is policy, critic, reward, annotation.strong (medium, weak), grading, prompts.quality or
    completion:NAME; `model` is the configured model, `none` without one; `option` is the option
    that sets it; `needed_by` are the verbs that use it. A reward model has no engine. `trainings`
    are the methods that begin with the policy's weights.
    """

    name: str
    model: str
    engine: EngineConfig | None
    option: str
    needed_by: tuple[str, ...]
    trainings: tuple[Method, ...] = ()

    @property
    def named(self) -> bool:
        """Whether a model is configured: a place, or an engine that works without one."""
        if self.model != NO_MODEL or self.engine is None:
            return self.model != NO_MODEL
        scripted, served = self.engine.kind == "scripted", self.engine.kind == "openai"
        return scripted or (served and bool(self.engine.base_urls))


class UnplayedRolesError(ConfigError):
    """Models that a run needs but that are not configured; `roles` are all that it needs."""

    code = "LPF-106"

    def __init__(self, message: str, roles: "Sequence[NeededRole]") -> None:
        super().__init__(message)
        self.roles = roles


def needed_roles(config: RunConfig, seen: Observed = NOTHING_SEEN) -> tuple[NeededRole, ...]:
    """Return the models that a run needs, the policy first; `seen` are the recipe's requests.

    Raises:
        ConfigError: if a pool of annotators or models cannot be used.
    """
    policy = NeededRole(
        name=POLICY,
        model=config.policy.model,
        engine=config.policy.engine,
        option=f"--policy {PLACE}",
        needed_by=(*seen.uses.get(POLICY, ()), EVALUATE),
        trainings=seen.trainings,
    )
    pools = (*_annotators(config, seen), *_completers(config))
    return (policy, *_critic(config, seen), *_reward(config, seen), *pools, *_judges(config, seen))


def trainings(roles: Sequence[NeededRole]) -> tuple[Method, ...]:
    """Return the methods that train in a run that needs these models, a reward model first."""
    return next((role.trainings for role in roles if role.name == POLICY), ())


def verifier_used_by(config: RunConfig, seen: Observed) -> tuple[str, ...]:
    """Return the verbs whose ratings come from the verifier; none if a model alone rates."""
    if config.critic.kind == "feedback":
        return ()
    return (*(verb for verb in seen.verbs if verb == CRITIQUE.name), EVALUATE)


def critic_alone(config: RunConfig) -> tuple[NeededRole, ...]:
    """Return the model that critiques answers from outside; empty if the verifier does."""
    return () if config.critic.kind == "verifier" else (_judge(config, CRITIC, ("critique",)),)


def require_named(roles: Sequence[NeededRole], recipe: str) -> None:
    """Refuse roles without a model; `recipe` is the recipe that needs them.

    Raises:
        UnplayedRolesError: naming them, who asks them, and the option that names each.
    """
    missing = [role for role in roles if not role.named]
    if missing:
        names = "; ".join(
            f"{recipe} needs a model for {role.name} ({', '.join(role.needed_by)}), and none is "
            f"configured: {role.option}"
            for role in missing
        )
        raise UnplayedRolesError(f"{names}{TOY}", roles)


def warn_unwatched(config: RunConfig) -> Iterator[str]:
    """Warn that a run whose policy judges itself lacks an independent critic."""
    if judges_itself(config) and CRITIC not in {role.name for role in needed_roles(config)}:
        yield (
            "no critic is configured: held-out answers are not rated, and no alarm can distinguish "
            "a better policy from one that pleases itself: "
            f"--critic {config.policy.model} has them rated by M_0 in every iteration"
        )


def _critic(config: RunConfig, seen: Observed) -> Iterator[NeededRole]:
    """Give the critic if a verb uses it, or if it is configured and can rate held-out answers.

    If the verifier rates, the critic judges only facts.
    """
    verbs = seen.uses.get(CRITIC, ())
    if config.critic.kind == "verifier":
        critic = _judge(config, CRITIC, (EVALUATE,))
        by_critic = config.facts.judge == "critic" and critic.named
    else:
        critic = _judge(config, CRITIC, (*verbs, EVALUATE))
        by_critic = CRITIC in seen.uses or config.critic.kind == "both" or critic.named
    if by_critic:
        yield critic


def _reward(config: RunConfig, seen: Observed) -> Iterator[NeededRole]:
    """Give the reward model if one is configured and used; recipes work without one.

    It measures answers if a verb uses it anyway, unless the configuration decides.
    """
    scored, with_reward = REWARD in seen.uses, config.assessment.reward
    measured = scored if with_reward is None else with_reward
    if (scored or measured) and config.reward.model != NO_MODEL:
        yield NeededRole(
            name=REWARD,
            model=config.reward.model,
            engine=None,
            option="--set reward.model=FOLDER or ./FILE.py:NAME",
            needed_by=(*seen.uses.get(REWARD, ()), *((EVALUATE,) if measured else ())),
        )


def _annotators(config: RunConfig, seen: Observed) -> Iterator[NeededRole]:
    panels = Panels.of(config)
    annotating = seen.uses.get(ANNOTATION, ()) if panels.training else ()
    for role in panels.roles:
        needed_by = (*annotating, *((EVALUATE,) if panels.evaluation else ()))
        yield _judge(config, f"{ANNOTATION}.{role}", needed_by)


def _completers(config: RunConfig) -> Iterator[NeededRole]:
    completers = completers_of(config)
    for model in () if completers is None else completers.others:
        yield NeededRole(
            name=f"{COMPLETION}:{model.name}",
            model=model.model or NO_MODEL,
            engine=model.engine,
            option=f"completion.pool, the model {model.name} of its file",
            needed_by=("complete",),
        )


def _judges(config: RunConfig, seen: Observed) -> Iterator[NeededRole]:
    """Give the judges of completions, of prompts and of held-out answers."""
    if grades(config):
        yield _judge(config, GRADING, seen.uses.get(GRADING, ()))
    if config.prompts.quality.judge == "model":
        yield _judge(config, QUALITY, (REVIEW,))
    if config.assessment.scores:
        yield _judge(config, SCORING_JUDGE, (EVALUATE,))


def _judge(config: RunConfig, name: str, needed_by: tuple[str, ...]) -> NeededRole:
    """Return a judge or an annotator, as `place_of` finds it."""
    model, engine = place_of(config, name)
    return NeededRole(
        name=name,
        model=model,
        engine=engine,
        option=f"--critic {PLACE}" if name == CRITIC else f"--set {name}.model={PLACE}",
        needed_by=needed_by,
    )
