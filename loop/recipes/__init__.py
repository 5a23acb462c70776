"""The loop variants: one file a method, one line each in `RECIPES`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...stores.records import Checkpoint
from ..iteration import Iteration
from . import reward_only, rlrf


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A recipe and what `lpfloop variants` says of it."""

    recipe: Callable[[Iteration, Any], Checkpoint]
    paper: str
    summary: str


RECIPES: Mapping[str, Variant] = {
    "rlrf": Variant(recipe=rlrf.rlrf, paper=rlrf.PAPER, summary=rlrf.SUMMARY),
    "reward-only": Variant(
        recipe=reward_only.reward_only, paper=reward_only.PAPER, summary=reward_only.SUMMARY
    ),
}
