"""Tokens to the same score, in a comparison: what each method needs, and how many times as many.

Scores are multiples of five points above every run's M_0, up to the best that a method came to.
Tokens are the policy's, of the policies within the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from ...stores.keys import Json
from ..evaluation.method_outcomes import MethodOutcome, shared_metric
from ..evaluation.tokens_to_reach import TokenRatio, TokensToReach, token_ratio, tokens_to_reach

STEP = 0.05
MOST = 6
"""So many scores are shown, the highest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedScore:
    """What each method needs to a score, and the first one's tokens over each other's."""

    metric: str
    score: float
    needed: tuple[TokensToReach, ...]
    ratios: tuple[TokenRatio, ...]


def reached_scores(outcomes: Sequence[MethodOutcome]) -> list[ReachedScore]:
    """Return what methods need to the same scores, the lowest first; nothing without a rise."""
    metric = shared_metric(outcomes)
    if metric is None:
        return []
    began = [c.points[0].result.numbers[metric].value for o in outcomes for c in o.courses]
    ended = [o.together.numbers[metric].value for o in outcomes]
    # Ten digits, as 0.15 is no multiple of 0.05 in binary.
    lowest, highest = (floor(round(at / STEP, 10)) for at in (max(began), max(ended)))
    steps = range(lowest + 1, highest + 1)[-MOST:]
    return [_reached(outcomes, metric, round(step * STEP, 10)) for step in steps]


def _reached(outcomes: Sequence[MethodOutcome], metric: str, score: float) -> ReachedScore:
    needed = tuple(
        tokens_to_reach([c.up_to(o.budget) for c in o.courses], score, metric, of="policy")
        for o in outcomes
        if any(len(c.up_to(o.budget).points) > 1 for c in o.courses)
    )
    ratios = tuple(token_ratio(needed[0], other) for other in needed[1:])
    return ReachedScore(metric=metric, score=score, needed=needed, ratios=ratios)


def reach_head(found: Sequence[ReachedScore]) -> tuple[str, ...]:
    """Return the headings of `reach_rows`."""
    first = found[0]
    ratios = (f"{ratio.method} over {ratio.over}" for ratio in first.ratios)
    return (f"{first.metric.capitalize()} %", *(n.method for n in first.needed), *ratios)


def reach_rows(found: Sequence[ReachedScore]) -> list[tuple[str, ...]]:
    """Return each score as texts: tokens, and how many times as many the first method needs."""
    return [
        (
            f"{100 * each.score:.0f}",
            *(_told(needed, 0) for needed in each.needed),
            *(_told(ratio, 1) for ratio in each.ratios),
        )
        for each in found
    ]


def reach_documents(found: Sequence[ReachedScore]) -> list[Json]:
    """Return the same as JSON data."""
    return [
        {
            "metric": each.metric,
            "score": each.score,
            "tokens": [{"method": n.method, **_document(n)} for n in each.needed],
            "ratios": [{"method": r.method, "over": r.over, **_document(r)} for r in each.ratios],
        }
        for each in found
    ]


def _told(found: TokensToReach | TokenRatio, decimals: int) -> str:
    """Return a mean with its interval; where some run lacks it, how many have it."""
    if found.mean is None:
        return f"in {sum(of is not None for of in found.by_seed)} of {len(found.by_seed)} runs"
    mean = f"{found.mean:,.{decimals}f}"
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{found.low:,.{decimals}f}, {found.high:,.{decimals}f}]"


def _document(found: TokensToReach | TokenRatio) -> dict[str, Json]:
    return {
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "by_seed": list(found.by_seed),
        "remark": found.remark,
    }
