"""What of the models that a run asks must not change while it goes on.

Each function gives one resource's part of the run's fingerprint: which models are asked, and by
what. A resource that a run does not have gives nothing.
"""

from collections.abc import Mapping

from ...critics.facts.fact_judge import STATEMENTS, SUPPORT, FactJudge
from ...critics.grading.graded_aspects import SCALES
from ...critics.grading.grader import Grader
from ...critics.scoring.answer_forms import Forms
from ...stores.keys import Json
from .completers import Completers
from .models import Models
from .panel import Panels
from .prompt_filters import Filters


def annotators_fingerprint(models: Models, panels: Panels) -> Mapping[str, Json]:
    """Return the part of those who compare answers."""
    served = {role: served.params for role, served in models.annotators.items()}
    return {"annotators": served, "pool": panels.digests} if served else {}


def completers_fingerprint(models: Models, completers: Completers | None) -> Mapping[str, Json]:
    """Return the part of the pool of models that completes prompts."""
    if completers is None:
        return {}
    served = {name: served.params for name, served in models.completers.items()}
    return {"completers": {"served": served, **completers.digests}}


def reviewer_fingerprint(models: Models, filters: Filters) -> Mapping[str, Json]:
    """Return the part of who judges prompts."""
    if filters.reviewer is None:
        return {}
    return {"reviewer": {"served": models.reviewer.params, "asked": filters.reviewer.digest}}


def benchmarks_fingerprint(filters: Filters) -> Mapping[str, Json]:
    """Return the part of the files whose prompts are not trained on."""
    held = filters.rules.benchmarks
    return {"benchmarks": [[file.name, file.digest] for file in held]} if held else {}


def grader_fingerprint(models: Models, grader: Grader | None) -> Mapping[str, Json]:
    """Return the part of who grades completions."""
    if grader is None:
        return {}
    templates = {aspect: grader.digest(aspect) for aspect in SCALES}
    return {"grading": {"served": models.grader.params, "templates": templates}}


def scores_fingerprint(models: Models, forms: Forms) -> Mapping[str, Json]:
    """Return the part of who scores answers, and by which forms."""
    if not forms:
        return {}
    asked = {name: form.digest for name, form in sorted(forms.items())}
    return {"scores": {"served": models.answer_judge.params, "forms": asked}}


def facts_fingerprint(judge: FactJudge | None) -> Mapping[str, Json]:
    """Return the part of what is asked about facts."""
    if judge is None:
        return {}
    return {"facts": {name: judge.digest(name) for name in (STATEMENTS, SUPPORT)}}
