"""What a recipe does, as its rehearsal shows: whom it asks, how it trains, what prompts it uses."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...policies.trainers.job import Method
from ...stores.keys import Json
from ..data.splits import PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a recipe did in `iterations` iterations.

    `asked` has the verbs that asked each role: policy, critic, reward, grading, annotation,
    completion. `trainings` are the methods that trained, in their order; `trains` is also true if
    the run ended because it could not train. `parts` are the parts of the prompts that were used.
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
        """Return what `as_json` wrote."""
        return cls(
            iterations=found["iterations"],
            asked={role: tuple(verbs) for role, verbs in found["asked"].items()},
            verbs=tuple(found["verbs"]),
            trainings=tuple(found["trainings"]),
            trains=found["trains"],
            parts=tuple(found["parts"]),
        )


NOTHING_SEEN = Observed()
"""Of a run without a recipe, and before a rehearsal."""
