"""Measuring answers by a strong judge's scores: means by aspect, and totals.

An answer that is unscored in an aspect is left out of that aspect's mean, and of means over
aspects. A total is the mean of its categories' means, as in AlignBench, and is computed only if
every category has an answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from statistics import fmean

from ...configs.schema import ConfigError, RunConfig
from ...critics.scoring.answer_forms import AnswerForm
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Evaluation, Grade, Prompt, Score
from ...stores.schemas import RowsByType
from ..data.splits import HELD_OUT, eval_set_of, is_measured_on
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.judges import forms_of, forms_on
from ..run.run import Verb
from ..stages.grade import score_answers
from .metrics import Clusters, clustered_params, every_row, number_of, score_of, summarise

MEASURE_SCORES = Verb("measure_scores")
MEAN, OVERALL = "mean", "total"


def require_scorable(config: RunConfig, held_out: Sequence[Prompt]) -> None:
    """Refuse a form that cannot score any held-out prompt.

    Raises:
        ConfigError: naming the form, and what the prompts lack.
    """
    forms = forms_of(config)
    for eval_set in sorted({prompt.eval_set or "" for prompt in held_out}):
        own = [prompt for prompt in held_out if (prompt.eval_set or "") == eval_set]
        for form in forms_on(config, forms, eval_set or None):
            if all(form.lacks_reference(prompt) for prompt in own):
                of = f"the set {eval_set!r}" if eval_set else "the held-out prompts"
                raise ConfigError(
                    f"assessment.scores: {form.name} compares each answer with a reference, and "
                    f"{of} lack one: give them a `reference`, or choose another form"
                )


def measure_scores(
    it: Iteration, answers: Rows[Candidate], name: str, benchmark: str, clusters: Clusters
) -> None:
    """Score held-out answers with the judge by the forms of their set, and sum the scores up."""
    if not is_measured_on(name, HELD_OUT):
        return
    forms = forms_on(it.run.config, it.run.forms, eval_set_of(name))
    if not forms:
        return
    graded = [score_answers(it, answers, form) for form in forms]

    def make(_: Unit) -> RowsByType:
        scores, numbers = list[Score](), list[Evaluation]()
        for form, rows in zip(forms, graded, strict=True):
            own = list(_scores(it, form, every_row(it, rows), benchmark))
            scores += own
            numbers += [*summarise(own, clusters), *_totals(it, form, own, clusters)]
        return {Score: scores, Evaluation: numbers}

    content: Json = [benchmark, [[form.name, form.summed] for form in forms]]
    work = it.whole(MEASURE_SCORES, clustered_params(content, clusters), *graded)
    it.run.make(it.number, f"scores:{benchmark}", work, make)


def _scores(
    it: Iteration, form: AnswerForm, grades: Iterable[Grade], benchmark: str
) -> Iterator[Score]:
    """Give the score of each answer in each aspect, and their mean if it has them all."""
    by_answer = dict[str, dict[str, Grade]]()
    for grade in grades:
        by_answer.setdefault(grade.candidate_id, {})[grade.aspect] = grade
    averaged = [form.metric(aspect) for aspect in form.mean]
    for candidate_id, of in by_answer.items():
        ratings = {name: grade.rating for name, grade in of.items() if grade.rating is not None}
        if averaged and all(name in ratings for name in averaged):
            ratings[form.metric(MEAN)] = fmean(ratings[name] for name in averaged)
        for metric, value in ratings.items():
            prompt = next(iter(of.values())).prompt_id
            yield score_of(it, benchmark, metric, value, prompt=prompt, candidate=candidate_id)


def _totals(
    it: Iteration, form: AnswerForm, scores: Sequence[Score], clusters: Clusters
) -> Iterator[Evaluation]:
    """Give the means of categories' means, and the mean of these: each only if it is complete."""
    if form.total is None or not scores:
        return
    metric = form.metric(form.total)
    counted = [score for score in scores if score.metric == metric]
    found = dict[str, tuple[float, float | None, int]]()
    for name, groups in form.totals.items():
        there = [
            (mean.value, mean.stderr, mean.n)
            for group in groups
            for mean in summarise(
                [s for s in counted if it.run.prompts[s.prompt_id].family in group], clusters
            )
        ]
        if len(there) == len(groups):
            found[name] = _mean_of_means(there)
    if len(found) == len(form.totals) > 1:
        found[OVERALL] = _mean_of_means(list(found.values()))
    for name, (value, stderr, n) in found.items():
        yield number_of(it, scores[0].benchmark, form.metric(name), value, stderr=stderr, n=n)


def _mean_of_means(
    means: Sequence[tuple[float, float | None, int]],
) -> tuple[float, float | None, int]:
    """Return the mean of independent means, with its standard error if all of theirs are given."""
    errors = [error for _, error, _ in means if error is not None]
    known = len(errors) == len(means)
    spread = sqrt(sum(error**2 for error in errors)) / len(means) if known else None
    return fmean(value for value, _, _ in means), spread, sum(n for _, _, n in means)
