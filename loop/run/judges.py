"""The judges of a run other than its critic, as its configuration names them, and the verifier."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypedDict

from ...configs.annotation import AnnotatorModel, Role, of_eval_set
from ...configs.engines import NO_MODEL, EngineConfig
from ...configs.judging import RuleFilters
from ...configs.own_function import OwnFunction
from ...configs.recipe_names import recipe_classes
from ...configs.recipes import Varied
from ...configs.schema import ConfigError, RunConfig
from ...critics.annotators.annotator_pool import Annotator, AnnotatorPool, load_pool
from ...critics.facts.fact_judge import STATEMENTS, SUPPORT, FactJudge
from ...critics.grading.grade_reply import SCALES
from ...critics.grading.grader import Grader
from ...critics.quality.prompt_review import Reviewer
from ...critics.scoring.answer_forms import AnswerForm, Forms, load_form
from ...critics.verify import Verifier
from ...stores.keys import Json
from ..data.cycles import require_few_answers
from ..data.prompt_rules import Rules
from .completers import Completers, completers_of
from .models import CRITIC, GRADING, QUALITY, SCORING_JUDGE, Models, annotates, grades, is_endpoint
from .stop import Stopped

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


FEWEST = 50
"""The answers to math that must have been verified before the share of timeouts counts."""


class TooManyTimeoutsError(Stopped):
    """Too large a share of the answers to math took too long to compare."""


class Judges(TypedDict):
    """The judges of a run and its pools, by the fields of `Run`; None if the run does not ask it.

    A fact judge breaks up answers into statements, and compares these with a reference.
    """

    panels: Panels
    completers: Completers | None
    filters: Filters
    grader: Grader | None
    fact_judge: FactJudge | None
    forms: Forms


def judges_of(config: RunConfig, models: Models) -> Judges:
    """Read the judges and pools of a run.

    Raises:
        ConfigError: if a pool, a form, a filter or a template cannot be used.
    """
    judges_facts = config.facts.judge == "critic" and CRITIC in models.judging
    return Judges(
        panels=Panels.of(config),
        completers=completers_of(config),
        filters=Filters.from_config(config),
        grader=Grader.from_config(config.grading) if grades(config) else None,
        fact_judge=FactJudge.from_config(config.facts) if judges_facts else None,
        forms=_judged_forms(config, models),
    )


def forms_of(config: RunConfig) -> Forms:
    """Return the forms by which held-out answers are scored, by how the configuration names them.

    Raises:
        ConfigError: if one cannot be read, or two have one name.
    """
    scores = config.assessment.scores
    named = scores if isinstance(scores, tuple) else [n for own in scores.values() for n in own]
    found = {place: load_form(place) for place in dict.fromkeys(named)}
    by_name: dict[str, str] = {}
    for place, form in found.items():
        other = by_name.setdefault(form.name, place)
        if other != place:
            raise ConfigError(
                f"assessment.scores: {other} and {place} are both called {form.name!r}, as their "
                "scores would be: rename one of the files"
            )
    return found


def _judged_forms(config: RunConfig, models: Models) -> Forms:
    """Return the forms of a run whose judge is somebody else than the policy it begins with.

    Raises:
        ConfigError: if one cannot be read, or the policy would score its own answers.
    """
    # A run whose answers came from outside measures no policy, and has no such judge.
    if SCORING_JUDGE not in models.judging:
        return {}
    found = forms_of(config)
    if models.judge(SCORING_JUDGE).identity == models.initial.identity:
        raise ConfigError(
            "assessment.judge.model is the policy with which the run begins, which would score its "
            "own answers: name another model, a strong one"
        )
    return found


def forms_on(config: RunConfig, forms: Forms, eval_set: str | None) -> tuple[AnswerForm, ...]:
    """Return the forms by which answers to a set of held-out prompts are scored."""
    return tuple(forms[name] for name in of_eval_set(config.assessment.scores, eval_set) or ())


def verifier_of(config: RunConfig, own: OwnFunction | None) -> Verifier:
    """Return a run's verifier, which ends the run if too many comparisons take too long.

    Each of them takes its full time and a worker, and says nothing about the answer.
    """
    most = config.critic.most_timeouts

    def require_few(timeouts: int, verified: int) -> None:
        if verified >= FEWEST and timeouts > most * verified:
            raise TooManyTimeoutsError(
                f"{timeouts} of {verified} answers to math took too long to compare, more than "
                f"critic.most_timeouts={most:g}: look at them with `lpfloop critiques --unscored`, "
                "then resume, or resume with a higher share"
            )

    return Verifier(
        own,
        sentence_match=config.facts.judge == "sentence_match",
        on_timeout=require_few,
    )


def judges_fingerprint(models: Models, judges: Judges) -> Mapping[str, Json]:
    """Return what of the judges and the pools must not change while a run goes on, by resource."""
    found, filters = dict[str, Json](), judges["filters"]
    if models.annotators:
        found["annotators"] = {role: served.params for role, served in models.annotators.items()}
        found["pool"] = judges["panels"].digests
    if (completers := judges["completers"]) is not None:
        served = {name: served.params for name, served in models.completers.items()}
        found["completers"] = {"served": served, **completers.digests}
    if filters.reviewer is not None:
        reviewer = filters.reviewer.digest
        found["reviewer"] = {"served": models.judge(QUALITY).params, "asked": reviewer}
    if held := filters.rules.benchmarks:
        found["benchmarks"] = [[file.name, file.digest] for file in held]
    if (grader := judges["grader"]) is not None:
        templates = {aspect: grader.digest(aspect) for aspect in SCALES}
        found["grading"] = {"served": models.judge(GRADING).params, "templates": templates}
    if forms := judges["forms"]:
        digests = {name: form.digest for name, form in sorted(forms.items())}
        found["scores"] = {"served": models.judge(SCORING_JUDGE).params, "forms": digests}
    if (fact_judge := judges["fact_judge"]) is not None:
        found["facts"] = {name: fact_judge.digest(name) for name in (STATEMENTS, SUPPORT)}
    return found
