"""The aspects in which completions are graded, and the scale of each (UltraFeedback, 2.4)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...stores.records import GradedAspect

LOWEST = 1
"""The worst rating on every scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeScale:
    """How an aspect is rated: from `LOWEST` to `best`.

    `types` is the number of kinds of mistakes, or of help, in its template's numbered list; 0 for a
    template without a list. `may_not_apply` allows N/A instead of a rating.
    """

    best: int
    types: int = 0
    may_not_apply: bool = False


SCALES: Mapping[GradedAspect, GradeScale] = {
    "instruction_following": GradeScale(best=5),
    "truthfulness": GradeScale(best=5, types=3),
    "honesty": GradeScale(best=5, may_not_apply=True),
    "helpfulness": GradeScale(best=5, types=3),
    "overall": GradeScale(best=10),
}

BY_NAME: Mapping[str, GradeScale] = {str(aspect): scale for aspect, scale in SCALES.items()}
"""The scales by any name; a form of scores defines other aspects and another scale."""

FINE_GRAINED: tuple[GradedAspect, ...] = tuple(a for a in SCALES if a != "overall")
"""The aspects that all completions of a prompt are rated in together; their mean is the
fine-grained score."""
