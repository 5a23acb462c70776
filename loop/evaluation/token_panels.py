"""Score against generated tokens: a line a method, over its seeds, by the policy's and by all."""

from collections.abc import Sequence

from ..lake.query.figures import SHARES
from ..lake.statistics.seed_interval import seed_mean
from .method_outcomes import MethodOutcome, measure_interval
from .plots import Lines, Panel, Series
from .token_course import TokenCourse
from .tokens_to_reach import Counted, curve, score_at

THOUSAND = 1000
AXES: dict[Counted, str] = {
    "policy": "1,000 tokens of the policy",
    "all": "1,000 tokens of policy and judges",
}


def token_panels(outcomes: Sequence[MethodOutcome], metric: str) -> list[Panel]:
    """Return a panel for the policy's tokens, and one for the policy's and its judges'."""
    scale = 100 if metric in SHARES else 1
    return [
        Lines(
            series=[_series(outcome, metric, of, scale) for outcome in outcomes],
            title=f"{metric} at equal tokens",
            x_label=label,
            y_label=f"{metric}, held-out" + (", %" if scale > 1 else ""),
        )
        for of, label in AXES.items()
    ]


def _series(outcome: MethodOutcome, metric: str, of: Counted, scale: float) -> Series:
    courses = list(outcome.courses)
    points = (
        _over_seeds([curve(course, metric, of=of) for course in courses], of_shares=scale > 1)
        if len(courses) > 1
        else _over_prompts(courses[0], metric, of)
    )
    sure = all(low is not None and high is not None for *_, low, high in points)
    return Series(
        label=outcome.method,
        x=[x / THOUSAND for x, *_ in points],
        y=[scale * y for _, y, *_ in points],
        low=[scale * (low or 0.0) for *_, low, _ in points] if sure else (),
        high=[scale * (high or 0.0) for *_, high in points] if sure else (),
    )


Point = tuple[float, float, float | None, float | None]
"""Tokens, score, and the ends of its interval."""


def _over_seeds(curves: Sequence[Sequence[tuple[float, float]]], *, of_shares: bool) -> list[Point]:
    """Return the mean curve, at the tokens of the first run's policies, up to the shortest run."""
    if not all(curves):
        return []
    ends = min(points[-1][0] for points in curves)
    places = sorted({*(x for x, _ in curves[0] if x < ends), ends})
    found = list[Point]()
    for tokens in places:
        scores = [score_at(points, tokens) for points in curves]
        known = [score for score in scores if score is not None]
        mean = seed_mean(known, of_shares=of_shares)
        found.append((tokens, mean.value, mean.low, mean.high))
    return found


def _over_prompts(course: TokenCourse, metric: str, of: Counted) -> list[Point]:
    found = list[Point]()
    tokens = dict(zip(range(len(course.points)), curve(course, metric, of=of), strict=False))
    for number, (x, y) in tokens.items():
        measure = course.points[number].result.numbers.get(metric)
        within = None if measure is None else measure_interval(metric, measure)
        found.append((x, y, within and within.low, within and within.high))
    return found
