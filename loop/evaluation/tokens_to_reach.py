"""A run's score against generated tokens: straight lines between its measured policies.

M_0 is at 0 tokens.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from .token_course import TokenCourse

Counted = Literal["policy", "all"]
"""Which tokens count: the policy's, or the policy's and its judges'."""


def curve(course: TokenCourse, metric: str, *, of: Counted) -> list[tuple[float, float]]:
    """Return the tokens and the score of each policy of a run that was measured, M_0 first."""
    return [
        (float(point.cost.policy_tokens if of == "policy" else point.cost.tokens), score)
        for point in course.points
        for score in [point.score(metric)]
        if score is not None
    ]


def score_at(points: Sequence[tuple[float, float]], tokens: float) -> float | None:
    """Return the score of a curve after so many tokens; None beyond its end."""
    if points and points[0][0] == tokens:
        return points[0][1]
    for (before, old), (after, new) in pairwise(points):
        if before <= tokens <= after:
            return (
                new if after == before else old + (new - old) * (tokens - before) / (after - before)
            )
    return None
