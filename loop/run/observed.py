"""A summary of a recipe's rehearsal: its roles, its trainings and its prompts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...policies.trainers.job import Method
from ...stores.keys import Json
from ..data.splits import PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The actions of a recipe in `iterations` iterations.

    `asked` maps each role (policy, critic, reward, grading, annotation, completion) to the verbs
    that use it. `trainings` are the methods that trained, in their order; `trains` is also true
    if the run ended because it could not train. `parts` are the parts of the prompts in use.
    """

    iterations: int = 0
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    verbs: tuple[str, ...] = ()
    trainings: tuple[Method, ...] = ()
    trains: bool = False
    parts: tuple[str, ...] = PARTS

    def as_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Observed":
        """Return the value that `as_json` converted."""
        return cls(
            iterations=found["iterations"],
            asked={role: tuple(verbs) for role, verbs in found["asked"].items()},
            verbs=tuple(found["verbs"]),
            trainings=tuple(found["trainings"]),
            trains=found["trains"],
            parts=tuple(found["parts"]),
        )


NOTHING_SEEN = Observed()
"""For a run without a recipe, and before a rehearsal."""
