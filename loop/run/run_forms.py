"""The forms by which a run's answers are scored, read before it begins."""

from ...configs.exam_names import of_exam
from ...configs.schema import ConfigError, RunConfig
from ...critics.scoring.answer_forms import AnswerForm, Forms, load_form
from .models import SCORING_JUDGE, Models


def forms_of(config: RunConfig) -> Forms:
    """Return the forms that a configuration names, by how it names them.

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


def forms_on(config: RunConfig, forms: Forms, exam: str | None) -> tuple[AnswerForm, ...]:
    """Return the forms by which answers to a set of held-out prompts are scored."""
    return tuple(forms[name] for name in of_exam(config.assessment.scores, exam) or ())
