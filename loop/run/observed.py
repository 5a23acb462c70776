"""A summary of a recipe's rehearsal: its roles, its trainings and its prompts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...policies.trainers.job import Method
from ..data.splits import PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The actions of a recipe in `iterations` iterations.

    `uses` maps each role (policy, critic, reward, grading, annotation, completion) to the verbs
    that use it. `trainings` are the methods that trained, in their order; `trains` is also true
    if the run ended because it could not train. `parts` are the parts of the prompts in use.
    """

    iterations: int = 0
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    verbs: tuple[str, ...] = ()
    trainings: tuple[Method, ...] = ()
    trains: bool = False
    parts: tuple[str, ...] = PARTS


NOTHING_SEEN = Observed()
"""For a run without a recipe, and before a rehearsal."""
