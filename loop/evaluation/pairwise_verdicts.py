"""Which of several runs' models are better than which others, prompt by prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..lake.statistics.decisions import Decision, PairedResults, decide
from .compare_runs import Result

DECIDING = ("verified", "win_rate", "approval")
"""The metrics that can decide, all of them shares: the first that both have does."""
ERROR_RATE, WORTHWHILE = 0.05, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseVerdict:
    """Whether the model of `after` is better than that of `before`, in a metric, and how surely."""

    before: Result
    after: Result
    metric: str
    decision: Decision


def pairwise_verdicts(
    found: Sequence[Result], error_rate: float = ERROR_RATE
) -> list[PairwiseVerdict]:
    """Return the verdict on each two results with prompts in common, by the same judge.

    The error rate is shared: that any of the verdicts says "better" where nothing is gained is at
    most as likely as that.
    """
    pairs = list(_pairs(found))
    return [
        PairwiseVerdict(
            before=before,
            after=after,
            metric=metric,
            decision=decide(results, alpha=error_rate / len(pairs), worthwhile=WORTHWHILE),
        )
        for before, after, metric, results in pairs
    ]


def apart(found: Sequence[Result]) -> list[Result]:
    """Return the results of runs that have no verdict against any other."""
    pairs = list(_pairs(found))
    known = {run for before, after, *_ in pairs for run in (*before.runs, *after.runs)}
    return [result for result in found if not known & set(result.runs)]


def _pairs(found: Sequence[Result]) -> Iterator[tuple[Result, Result, str, PairedResults]]:
    for before, after in combinations(found, 2):
        for metric in DECIDING:
            results = _paired(before, after, metric)
            if results is not None:
                yield before, after, metric, results
                break


def _paired(before: Result, after: Result, metric: str) -> PairedResults | None:
    """Return the scores of both on the prompts of both; None without any, or by other judges."""
    if before.judges.get(metric) != after.judges.get(metric):
        return None
    first, second = before.scores.get(metric, {}), after.scores.get(metric, {})
    prompts = [prompt for prompt in first if prompt in second]
    clusters = {**before.clusters, **after.clusters}
    if not prompts:
        return None
    return PairedResults(
        before=[first[prompt] for prompt in prompts],
        after=[second[prompt] for prompt in prompts],
        clusters=[clusters.get(prompt, prompt) for prompt in prompts],
    )
