"""Methods at equal tokens: the result of each within the budget, over its seeds, with intervals.

A run's result is the last policy that it made within the budget, regardless of its score: nothing
is chosen by held-out prompts. Over several seeds an interval is Student's of the seeds' means; for
one seed it is over prompts, and does not cover the variation between seeds.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

from ..lake.query.figures import SHARES
from ..lake.query.runs import open_run
from ..lake.statistics.decisions import Decision
from ..lake.statistics.intervals import SeedMean, quantile, seed_mean, share_change
from .compare_runs import INITIAL, Result, by_method
from .comparison import bounds_of
from .pairwise_verdicts import DECIDING, ERROR_RATE, WORTHWHILE, PairwiseVerdict, pairwise_verdicts
from .plots import Lines, Panel, Series
from .token_course import Counted, TokenCourse, TokenPoint, token_course

HOUR, THOUSAND = 3600, 1000
ENOUGH = 0.9
"""The share of the budget below which a method is marked, since others got more."""
FIGURES = ("verified", "approval", "mean_length", "win_rate", "kl", "reward")
"""The figures of a policy that the table shows, if they were measured."""
COSTS = ("policy_tokens", "judge_tokens", "hours")
"""The costs of making the policy; a policy's own figures have other names."""
AXES: dict[Counted, str] = {
    "policy": "1,000 tokens of the policy",
    "all": "1,000 tokens of policy and judges",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOutcome:
    """A method's runs, one a seed, each up to its last policy within the budget."""

    method: str
    courses: tuple[TokenCourse, ...]

    @property
    def points(self) -> list[TokenPoint]:
        """The last policy of each run."""
        return [course.points[-1] for course in self.courses]

    @property
    def results(self) -> list[Result]:
        """Their results."""
        return [point.result for point in self.points]

    @property
    def together(self) -> Result:
        """Their mean, prompt by prompt."""
        (mean,) = by_method([replace(result, method=self.method) for result in self.results])
        return mean

    def is_short(self, budget: int) -> bool:
        """Whether a run used too little of the budget for its policy to represent the others'.

        Such a policy may have had less training than its method needs.
        """
        return any(point.cost.policy_tokens < ENOUGH * budget for point in self.points)

    def figure(self, name: str) -> SeedMean | None:
        """Return a figure or a cost of the method; None if a run did not measure it."""
        if name == "hours":
            return seed_mean([point.cost.seconds / HOUR for point in self.points])
        if name in COSTS:
            return seed_mean([float(getattr(point.cost, name)) for point in self.points])
        measures = [result.numbers.get(name) for result in self.results]
        known = [measure for measure in measures if measure is not None]
        if not known or len(known) < len(measures):
            return None
        values = [measure.value for measure in known]
        if len(set(values)) > 1:
            return seed_mean(values, of_shares=name in SHARES)
        # With one seed, or for M_0 on the same prompts each time, only the prompts show the spread.
        low, high = bounds_of(name, known[0]) or (None, None)
        return SeedMean(value=values[0], low=low, high=high, seeds=len(values))


def shared_metric(outcomes: Sequence[MethodOutcome]) -> str | None:
    """Return the first usual figure by which every policy of every method was measured."""
    results = [p.result for o in outcomes for course in o.courses for p in course.points]
    known = (name for name in DECIDING if all(name in result.numbers for result in results))
    return next(known, None) if results else None


def method_outcomes(lake: Path, names: Sequence[str], budget: int) -> list[MethodOutcome]:
    """Return the outcome of each method among runs, of the seeds under which every method has one.

    M_0 is the first, as the runs of the first method measured it.

    Raises:
        NoSuchRunError: if a run does not exist.
    """
    found: dict[str, dict[int, TokenCourse]] = {}
    for name in names:
        with closing(open_run(lake, name)) as run:
            course = token_course(run)
        if course.points:
            found.setdefault(course.method, {})[course.seed] = course.within(budget)
    seeds = sorted(set[int].intersection(*map(set, found.values()))) if found else []
    if not seeds:
        return []
    every = [
        MethodOutcome(method=method, courses=tuple(courses[seed] for seed in seeds))
        for method, courses in found.items()
    ]
    began = tuple(replace(c, method=INITIAL, points=c.points[:1]) for c in every[0].courses)
    return [MethodOutcome(method=INITIAL, courses=began), *every]


def method_verdicts(outcomes: Sequence[MethodOutcome]) -> list[PairwiseVerdict]:
    """Return whether each method is better than each before it, by prompts and by seeds.

    The bounds of a difference are the wider of two: over prompts, averaged over seeds, and over
    seeds. For the second, the spread between seeds is taken as equal for all methods and pooled (a
    two-way layout of methods and seeds without their interaction), as three seeds alone could
    decide hardly anything. All verdicts share an error rate of 5 %, one half for "better" and one
    for worse, as the order of two methods is arbitrary. With one seed the bounds are over prompts
    only: they are about these policies, not about the methods.
    """
    found = pairwise_verdicts([outcome.together for outcome in outcomes], ERROR_RATE / 2)
    level = ERROR_RATE / 2 / max(1, len(found))
    return [_by_seeds_too(verdict, outcomes, level) for verdict in found]


def _by_seeds_too(
    verdict: PairwiseVerdict, outcomes: Sequence[MethodOutcome], level: float
) -> PairwiseVerdict:
    error, degrees = _seed_error(outcomes, verdict.metric)
    decision = verdict.decision
    if degrees == 0 or decision.low is None or decision.high is None:
        return verdict
    half = quantile(level, degrees) * error
    # Only shares decide.
    low, high = share_change(decision.difference - half, decision.difference + half)
    low, high = min(decision.low, low), max(decision.high, high)
    return PairwiseVerdict(
        before=verdict.before,
        after=verdict.after,
        metric=verdict.metric,
        decision=_decide(decision, low, high),
    )


def _decide(decision: Decision, low: float, high: float) -> Decision:
    """Return a decision by wider bounds; how many prompts would decide is then unknown."""
    answer = "better" if low > 0 else "not better" if high < WORTHWHILE else "undecided"
    return replace(decision, low=low, high=high, answer=answer, needed=None)


def _seed_error(outcomes: Sequence[MethodOutcome], metric: str) -> tuple[float, int]:
    """Return the standard error over seeds of a difference of two methods, and its degrees."""
    found = [_by_seed(outcome, metric) for outcome in outcomes]
    known = [values for values in found if values]
    shared = sorted(set[int].intersection(*map(set, known))) if known else []
    table, seeds = [[values[seed] for seed in shared] for values in known], len(shared)
    degrees = (len(table) - 1) * (seeds - 1)
    if degrees < 1:
        return 0.0, 0
    mean = sum(map(sum, table)) / (len(table) * seeds)
    of_seed = [sum(row[s] for row in table) / len(table) for s in range(seeds)]
    squares = sum(
        (row[s] - sum(row) / seeds - of_seed[s] + mean) ** 2 for row in table for s in range(seeds)
    )
    return sqrt(2 * squares / degrees / seeds), degrees


def _by_seed(outcome: MethodOutcome, metric: str) -> dict[int, float]:
    """Return a metric of each seed's policy; empty if one of them lacks it."""
    measured = zip(outcome.courses, outcome.results, strict=True)
    found = {c.seed: r.numbers[metric].value for c, r in measured if metric in r.numbers}
    return found if len(found) == len(outcome.courses) else {}


def token_panels(outcomes: Sequence[MethodOutcome], metric: str) -> list[Panel]:
    """Return a panel for the policy's tokens, and one for the policy's and its judges'.

    Each run is a line: the policies that it made, M_0 first.
    """
    scale = 100 if metric in SHARES else 1
    return [
        Lines(
            series=[
                Series(
                    label=f"{outcome.method}, seed {course.seed}",
                    x=[tokens / THOUSAND for tokens, _ in curve],
                    y=[scale * score for _, score in curve],
                )
                for outcome in outcomes
                for course in outcome.courses
                for curve in [course.curve(metric, of=of)]
            ],
            title=f"{metric} at equal tokens",
            x_label=label,
            y_label=f"{metric}, held-out" + (", %" if scale > 1 else ""),
        )
        for of, label in AXES.items()
    ]
