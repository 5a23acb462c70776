"""The judges of a run other than its critic, as its configuration names them, and the verifier.

Each function gives one of them, or nothing for a run that does not ask it.
"""

from collections.abc import Mapping

from ...configs.annotation import of_eval_set
from ...configs.own_function import OwnFunction
from ...configs.schema import ConfigError, RunConfig
from ...critics.facts.fact_judge import STATEMENTS, SUPPORT, FactJudge
from ...critics.grading.grade_reply import SCALES
from ...critics.grading.grader import Grader
from ...critics.scoring.answer_forms import AnswerForm, Forms, load_form
from ...critics.verify import Verifier
from ...stores.keys import Json
from .completers import Completers, grades
from .judge_panel import Panels
from .models import CRITIC, SCORING_JUDGE, Models
from .prompt_filters import Filters
from .stop import Stopped

FEWEST = 50
"""The answers to math that must have been verified before the share of timeouts counts."""


class TooManyTimeoutsError(Stopped):
    """Too large a share of the answers to math took too long to compare."""


def grader_of(config: RunConfig) -> Grader | None:
    """Return who grades completions; None for a recipe that has none graded.

    Raises:
        ConfigError: if its templates cannot be used.
    """
    return Grader.from_config(config.grading) if grades(config) else None


def fact_judge_of(config: RunConfig, models: Models) -> FactJudge | None:
    """Return what the judge of facts is asked; None if no model breaks up and compares statements.

    Raises:
        ConfigError: if its templates cannot be used.
    """
    judges = config.facts.judge == "critic" and CRITIC in models.judging
    return FactJudge.from_config(config.facts) if judges else None


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


def judged_forms(config: RunConfig, models: Models) -> Forms:
    """Return the forms of a run whose judge is somebody else than the policy it begins with.

    Raises:
        ConfigError: if one cannot be read, or the policy would score its own answers.
    """
    # A run whose answers came from outside measures no policy, and has no such judge.
    if SCORING_JUDGE not in models.judging:
        return {}
    found = forms_of(config)
    if models.answer_judge.identity == models.initial.identity:
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


def judges_fingerprint(
    models: Models,
    *,
    panels: Panels,
    completers: Completers | None,
    filters: Filters,
    grader: Grader | None,
    fact_judge: FactJudge | None,
    forms: Forms,
) -> Mapping[str, Json]:
    """Return what of the judges and the pools must not change while a run goes on, by resource."""
    found = dict[str, Json]()
    if models.annotators:
        found["annotators"] = {role: served.params for role, served in models.annotators.items()}
        found["pool"] = panels.digests
    if completers is not None:
        served = {name: served.params for name, served in models.completers.items()}
        found["completers"] = {"served": served, **completers.digests}
    if filters.reviewer is not None:
        reviewer = filters.reviewer.digest
        found["reviewer"] = {"served": models.reviewer.params, "asked": reviewer}
    if held := filters.rules.benchmarks:
        found["benchmarks"] = [[file.name, file.digest] for file in held]
    if grader is not None:
        templates = {aspect: grader.digest(aspect) for aspect in SCALES}
        found["grading"] = {"served": models.grader.params, "templates": templates}
    if forms:
        reviewer = {name: form.digest for name, form in sorted(forms.items())}
        found["scores"] = {"served": models.answer_judge.params, "forms": reviewer}
    if fact_judge is not None:
        found["facts"] = {name: fact_judge.digest(name) for name in (STATEMENTS, SUPPORT)}
    return found
