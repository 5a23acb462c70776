"""Sentences on the statements of an answer: their check against the reference, and unread ones."""

from collections.abc import Iterator

from ....stores.records import SCORED, Breakdown, Claim
from .story import Story

SIGNS = {"supported": "+", "not_supported": "-", "irrelevant": "o", None: "?"}


def stated(story: Story, candidate_id: str) -> Iterator[str]:
    """Yield a line for each statement of an answer, and for each passage that was not broken up."""
    for broken in story.breakdowns:
        if broken.candidate_id == candidate_id and broken.status != SCORED:
            yield _unbroken(broken)
    claims = [claim for claim in story.claims if claim.candidate_id == candidate_id]
    for claim in sorted(claims, key=lambda one: (one.judge, one.place)):
        yield _line(claim)


def claims_of(story: Story, candidate_id: str) -> list[str]:
    """Return the ids of an answer's statements and passages."""
    rows = [*((b.candidate_id, b.breakdown_id) for b in story.breakdowns)]
    rows += [(claim.candidate_id, claim.claim_id) for claim in story.claims]
    return [identity for answer, identity in rows if answer == candidate_id]


def _line(claim: Claim) -> str:
    said = claim.status if claim.verdict is None else claim.verdict.replace("_", " ")
    why = f" ({claim.reason})" if claim.reason else ""
    return f"{SIGNS[claim.verdict]} {claim.statement} {said}{why}"


def _unbroken(broken: Breakdown) -> str:
    if not broken.passage:
        return f"? no statements: {broken.status}"
    return f"? passage {broken.place + 1} not broken up: {broken.status}"
