"""Comparison of final answers with their references: quickly, by limits, or by math-verify."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..stores.records import Rating
from .math_answers import Final, answer_to, final_answer, reference_answer
from .math_limits import too_large
from .math_numbers import quick_equal
from .math_offers import one_of
from .math_pool import MathPool
from .status import MATH_ACCURACY, MATH_UNDECIDED, MATH_UNMARKED, Status

EQUAL, DIFFERENT = "equal", "different"


@dataclass(frozen=True, slots=True)
class MathOutcome:
    """The outcome of comparing an answer with its reference, and whether the answer was marked.

    An outcome other than `equal` and `different` decides nothing: accuracy is undefined, not 0.
    """

    outcome: str
    marked: bool

    @property
    def metrics(self) -> tuple[tuple[str, float], ...]:
        """The metrics of the answer."""
        beside = (
            (MATH_UNDECIDED, float(self.rating is None)),
            (MATH_UNMARKED, float(not self.marked)),
        )
        return (
            beside if self.rating is None else ((MATH_ACCURACY, float(self.rating == 1)), *beside)
        )

    @property
    def rating(self) -> Rating | None:
        """The rating, if the comparison was decided."""
        if self.outcome == EQUAL:
            return 1
        return -1 if self.outcome == DIFFERENT else None

    @property
    def reason(self) -> str:
        """Why it is rated so, or not at all."""
        return {EQUAL: "right", DIFFERENT: "wrong"}.get(self.outcome, self.outcome)


def check_answers(
    pairs: Sequence[tuple[str, str]],
    pool: MathPool,
    on_outcome: Callable[[str], None] = lambda _: None,
) -> list[MathOutcome]:
    """Compare (reference, answer) pairs; `on_outcome` is called with each outcome once it is known.

    Raises:
        MathVerifyMissingError: if a comparison needs math-verify and it is not installed.
    """
    finals = [_finals(*pair) for pair in pairs]
    outcomes = [_without_process(*final) for final in finals]
    for outcome in outcomes:
        if outcome is not None:
            on_outcome(outcome)
    jobs = [final for final, outcome in zip(finals, outcomes, strict=True) if outcome is None]
    compared = iter(pool.compare(jobs, on_outcome))
    return [
        MathOutcome(next(compared) if outcome is None else outcome, given.marked)
        for (_, given), outcome in zip(finals, outcomes, strict=True)
    ]


def _finals(reference: str, answer: str) -> tuple[Final, Final]:
    expected = reference_answer(reference)
    return expected, one_of(expected, answer_to(expected, final_answer(answer)))


def _without_process(expected: Final, given: Final) -> str | None:
    equal = quick_equal(expected, given)
    if equal is not None:
        return EQUAL if equal else DIFFERENT
    return Status.TOO_LARGE.value if too_large(given) and not too_large(expected) else None
