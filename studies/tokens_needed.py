"""The generated tokens that a method needs to reach a score, by seeds, and their ratios.

The need is the point at which a run's curve first reaches the score; not reaching it within the
budget is a result, too. Tokens and their ratios are positive and skewed, so means over seeds and
their intervals are taken of logarithms: the mean is a geometric one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from lpfloop.loop.evaluation.token_course import Counted, Curve, TokenCourse
from lpfloop.loop.lake.statistics.intervals import SeedMean, seed_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensToReach:
    """The tokens that a method needs to reach a score of a metric.

    With `is_gain` the score is a gain over the run's M_0. `by_seed` has None for a run that never
    reached it. `mean`, `low` and `high` (95 % interval) are over seeds, None unless all runs
    reached it; one seed has only the mean. `remark` is the reason.
    """

    method: str
    metric: str
    score: float
    is_gain: bool
    by_seed: tuple[float | None, ...]
    mean: float | None
    low: float | None
    high: float | None
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRatio:
    """The ratio of the tokens that one method and another one need to reach a score.

    `by_seed` pairs the runs of one seed; mean and interval are as in `TokensToReach`.
    """

    method: str
    over: str
    by_seed: tuple[float | None, ...]
    mean: float | None
    low: float | None
    high: float | None
    remark: str


def tokens_to_reach(
    courses: Sequence[TokenCourse],
    score: float,
    metric: str = "verified",
    *,
    of: Counted = "all",
    is_gain: bool = False,
) -> TokensToReach:
    """Return the tokens that a method needs to reach a score; `courses` are its runs, by seed.

    With `is_gain` it is a score above the score of each run's M_0, which differs if seeds have
    different held-out prompts.

    Raises:
        ValueError: without a course, or if the metric was measured in none.
    """
    curves = [course.curve(metric, of=of) for course in courses]
    if not any(len(points) > 1 for points in curves):
        raise ValueError(f"{metric} was measured of no policy that these runs have made")
    found = tuple(_first_at(points, score, is_gain=is_gain) for points in curves)
    mean = _log_mean(found)
    return TokensToReach(
        method=courses[0].method,
        metric=metric,
        score=score,
        is_gain=is_gain,
        by_seed=found,
        mean=None if mean is None else exp(mean.value),
        low=None if mean is None or mean.low is None else exp(mean.low),
        high=None if mean is None or mean.high is None else exp(mean.high),
        remark=_remark(found),
    )


def token_ratio(one: TokensToReach, over: TokensToReach) -> TokenRatio:
    """Return how many times the tokens of another method one needs; both have the same seeds.

    Raises:
        ValueError: if they are about different scores, or of other numbers of seeds.
    """
    if (one.metric, one.score, one.is_gain) != (over.metric, over.score, over.is_gain):
        raise ValueError("the two are about different scores")
    pairs = zip(one.by_seed, over.by_seed, strict=True)
    found = tuple(a / b if a and b else None for a, b in pairs)
    mean = _log_mean(found)
    return TokenRatio(
        method=one.method,
        over=over.method,
        by_seed=found,
        mean=None if mean is None else exp(mean.value),
        low=None if mean is None or mean.low is None else exp(mean.low),
        high=None if mean is None or mean.high is None else exp(mean.high),
        remark="; ".join(f"{of.method}: {of.remark}" for of in (one, over) if of.remark),
    )


def _first_at(
    points: Sequence[tuple[float, float]], score: float, *, is_gain: bool
) -> float | None:
    """Return the tokens after which a curve first reaches a score; None if it never does."""
    if points and is_gain:
        score += points[0][1]
    if points and points[0][1] >= score:
        return points[0][0]
    for (before, old), (after, new) in pairwise(points):
        if old < score <= new:
            return before + (after - before) * (score - old) / (new - old)
    return None


def _log_mean(found: Sequence[float | None]) -> SeedMean | None:
    """Return the mean of logarithms over seeds; None unless every seed has a positive number."""
    logs = [log(tokens) for tokens in found if tokens]
    return seed_mean(logs) if logs and len(logs) == len(found) else None


def _remark(found: Sequence[float | None]) -> str:
    never, at_once = sum(of is None for of in found), sum(of == 0 for of in found)
    told = list[str]()
    if never:
        told.append(f"never reached within the budget in {never} of {len(found)} runs")
    if at_once:
        told.append(f"M_0 has it already in {at_once} of {len(found)} runs: ask for a higher score")
    if len(found) == 1:
        told.append("one seed: no interval")
    return "; ".join(told)


def score_at(points: Curve, tokens: float) -> float | None:
    """Return the score after so many tokens, on straight lines between policies; None beyond."""
    for (before, old), (after, new) in pairwise([*points[:1], *points]):
        if before <= tokens <= after:
            part = (tokens - before) / (after - before) if after > before else 1.0
            return old + (new - old) * part
    return None
