"""Draws: candidates that are still to be drawn, each under an id and a seed of its own."""

from dataclasses import dataclass

from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One candidate to be drawn: everything of its row that is known beforehand."""

    candidate_id: str
    prompt_id: str
    messages: tuple[Message, ...]
    seed: int
    parent_id: str | None = None
    critique_id: str | None = None
    principle: str | None = None


def draws(
    root_seed: int,
    identity: Json,
    *,
    prompt_id: str,
    messages: tuple[Message, ...],
    count: int,
    parent_id: str | None = None,
    critique_id: str | None = None,
) -> list[Draw]:
    """Return `count` draws for one conversation; `identity` says what else their ids depend on."""
    ids = [
        row_id("cand", [identity, prompt_id, parent_id, critique_id, number])
        for number in range(count)
    ]
    return [
        Draw(
            candidate_id=candidate_id,
            prompt_id=prompt_id,
            messages=messages,
            seed=derive_seed(root_seed, "draw", candidate_id),
            parent_id=parent_id,
            critique_id=critique_id,
        )
        for candidate_id in ids
    ]
