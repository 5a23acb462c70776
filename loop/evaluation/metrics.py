"""Numbers about a checkpoint: prompt-level scores, their means and standard errors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...critics.verify import Verdict
from ...stores.keys import Json, digest
from ...stores.records import SCORED, Candidate, Critique, Evaluation, Prompt, Score
from ..data.splits import is_measured_on
from ..lake.statistics.intervals import mean_error
from ..run.handles import Rows, T
from ..run.iteration import Iteration

Clusters = Mapping[str, str]
"""The cluster of prompts, by the prompt's id."""

SCORING = ("measure", "facts", "assess")
"""The stages whose scores measure a policy, by the first word of their labels."""


def score_of(
    it: Iteration, benchmark: str, metric: str, value: float, *, prompt: str, candidate: str
) -> Score:
    """Return the score of an answer of the iteration's policy."""
    return Score(
        iteration=it.number,
        checkpoint_id=it.policy.identity,
        benchmark=benchmark,
        metric=metric,
        prompt_id=prompt,
        candidate_id=candidate,
        value=value,
    )


def number_of(
    it: Iteration, benchmark: str, metric: str, value: float, *, stderr: float | None, n: int
) -> Evaluation:
    """Return a number about the iteration's policy, over `n` prompts."""
    return Evaluation(
        iteration=it.number,
        checkpoint_id=it.policy.identity,
        benchmark=benchmark,
        metric=metric,
        value=value,
        stderr=stderr,
        n=n,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswers:
    """Greedy answers of one checkpoint to one benchmark, and the verdicts on each.

    `critiques` are by candidate; they are empty if the run lacks a critic.
    """

    benchmark: str
    checkpoint_id: str
    candidates: Sequence[Candidate]
    verdicts: Sequence[Verdict]
    critiques: Mapping[str, Critique]


def prompt_scores(measured: MeasuredAnswers) -> list[Score]:
    """Return the scores of the answers: the verifier's metrics, length, and ratings.

    `critic_agreement` is 1 if the critique's verdict (all aspects 1, or not) equals the verifier's.
    """
    return [
        Score(
            iteration=candidate.iteration,
            checkpoint_id=measured.checkpoint_id,
            benchmark=measured.benchmark,
            metric=metric,
            prompt_id=candidate.prompt_id,
            candidate_id=candidate.candidate_id,
            value=value,
        )
        for candidate, verdict in zip(measured.candidates, measured.verdicts, strict=True)
        for metric, value in (
            *verdict.metrics,
            ("mean_length", float(candidate.completion_tokens)),
            *_ratings(measured.critiques.get(candidate.candidate_id), verdict),
        )
    ]


def _ratings(critique: Critique | None, verdict: Verdict) -> list[tuple[str, float]]:
    if critique is None or critique.status != SCORED:
        return []
    rated = [
        (f"rating:{aspect.name}", float(aspect.rating))
        for aspect in critique.aspects
        if aspect.rating is not None
    ]
    if verdict.rating is not None:
        rated.append(("critic_agreement", float(critique.positive == (verdict.rating == 1))))
    return rated


def summarise(scores: Sequence[Score], clusters: Clusters | None = None) -> list[Evaluation]:
    """Return the mean of each metric, its standard error and the number of prompts behind it.

    The error is over clusters of prompts; a prompt without a cluster is a cluster of one.
    """
    named = clusters or {}
    groups: dict[tuple[int, str, str, str], list[Score]] = {}
    for score in scores:
        name = (score.iteration, score.checkpoint_id, score.benchmark, score.metric)
        groups.setdefault(name, []).append(score)
    return [
        Evaluation(
            iteration=iteration,
            checkpoint_id=checkpoint_id,
            benchmark=benchmark,
            metric=metric,
            value=fmean(score.value for score in sample),
            stderr=mean_error(
                [score.value for score in sample],
                [named.get(score.prompt_id, score.prompt_id) for score in sample],
            ),
            n=len(sample),
        )
        for (iteration, checkpoint_id, benchmark, metric), sample in sorted(groups.items())
    ]


def measured_keys(it: Iteration, number: int, split: str) -> Iterator[str]:
    """Yield the keys of the units with the scores of M_`number` on a split and its eval sets."""
    journal = it.run.store.journal
    stages = {state.stage for state in journal.stages() if state.iteration == number}
    for name in SCORING:
        for stage in sorted(stages):
            verb, _, benchmark = stage.partition(":")
            if verb == name and is_measured_on(benchmark, split):
                yield journal.key(number, stage, 0)


def given_clusters(prompts: Iterable[Prompt]) -> Clusters:
    """Return the cluster of each prompt that names one."""
    return {prompt.prompt_id: prompt.cluster for prompt in prompts if prompt.cluster is not None}


def clustered_params(others: Json, clusters: Clusters) -> Json:
    """Return the parameters of a unit's key: `others`, and the clusters of its errors, if any."""
    return [others, digest(sorted(clusters.items()))] if clusters else others


def every_row(it: Iteration, rows: Rows[T] | None) -> Iterator[T]:
    """Yield all rows of a handle, chunk by chunk; None is an empty one."""
    if rows is not None:
        for chunk in range(rows.chunks):
            yield from it.chunk(rows, chunk)
