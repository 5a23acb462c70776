"""Which of several runs' models are better than which others, prompt by prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ..lake.query.measured_change import is_on
from ..lake.statistics.decisions import Decision, PairedResults, decide
from .compare_runs import Result

DECIDING = ("verified", "win_rate", "approval")
"""The metrics that can decide, all of them shares: the first that both have does."""
ERROR_RATE, WORTHWHILE = 0.05, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseVerdict:
    """Whether `after`'s model is better than `before`'s in a metric, with an interval."""

    before: Result
    after: Result
    metric: str
    decision: Decision


def pairwise_verdicts(
    found: Sequence[Result], error_rate: float = ERROR_RATE
) -> list[PairwiseVerdict]:
    """Return the verdict on each two results with shared prompts, by the same judge.

    The verdicts share the error rate: it bounds the probability that any of them is "better"
    without a gain. If a run has stored a verdict on the two, that one is returned.
    """
    pairs = list(_pairs(found))
    return [
        PairwiseVerdict(
            before=before,
            after=after,
            metric=metric,
            decision=_decision(before, after, metric, results, error_rate / len(pairs)),
        )
        for before, after, metric, results in pairs
    ]


def _decision(
    before: Result, after: Result, metric: str, results: PairedResults, alpha: float
) -> Decision:
    decision = decide(results, alpha=alpha, worthwhile=WORTHWHILE)
    own = after.verdict_over(before)
    if own is None or not is_on(own, metric, results.before, results.after):
        return decision
    return replace(
        decision,
        clusters=own.clusters,
        low=own.low,
        high=own.high,
        answer=own.answer,
        needed=own.needed,
    )


def apart(found: Sequence[Result]) -> list[Result]:
    """Return the results of runs that lack a verdict against any other."""
    pairs = list(_pairs(found))
    known = {run for before, after, *_ in pairs for run in (*before.runs, *after.runs)}
    return [result for result in found if not known & set(result.runs)]


def _pairs(found: Sequence[Result]) -> Iterator[tuple[Result, Result, str, PairedResults]]:
    for before, after in combinations(found, 2):
        for metric in DECIDING:
            results = after.pair_with(before, metric)
            if results is not None:
                yield before, after, metric, results
                break
