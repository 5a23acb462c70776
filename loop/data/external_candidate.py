"""Answers that the run did not sample: people's, another model's, imported ones."""

from ...stores.keys import Json, row_id
from ...stores.records import Candidate


def external_candidate(
    identity: Json,
    *,
    prompt_id: str,
    text: str,
    source: str,
    model: str,
    iteration: int = 0,
    principle: str | None = None,
) -> Candidate:
    """Return the row of an answer, whose id is the hash of `identity`."""
    return Candidate(
        candidate_id=row_id("cand", identity),
        prompt_id=prompt_id,
        iteration=iteration,
        kind="external",
        parent_id=None,
        critique_id=None,
        policy=source,
        model=model,
        principle=principle,
        text=text,
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="stop",
        logprob=None,
        seed=0,
        sampling="",
    )
