"""A study's claims, and whether they hold: a paper's figure and ours with its interval.

An estimate is the mean over seeds, each of them a separate run; its interval is Student's, of level
95 %, with a degree of freedom fewer than there are seeds. A single seed lacks an interval, and so
decides nothing; nor does a figure that some seed lacks. A claim is a region: it is decided if the
interval is inside of it, or outside; a study holds if all its claims do, so that no correction for
their number is due.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Literal

from ...stores.keys import Json
from ..lake.statistics.intervals import SeedMean, seed_mean

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
ClaimVerdict = Literal["holds", "does not hold", "undecided"]
NO_INTERVAL = "no interval: one seed"
UNKNOWN = "not measured in every seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedEstimate:
    """A mean over seeds with its interval; without bounds for a single seed.

    If a seed lacks the figure the mean is NaN, of 0 seeds. `unit` follows the number, such as
    `points` or `%`; `digits` is the number of decimals.
    """

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    unit: str = ""
    digits: int = 1
    signed: bool = False

    @classmethod
    def of(
        cls,
        by_seed: Iterable[float | None],
        unit: str = "",
        *,
        digits: int = 1,
        signed: bool = False,
    ) -> "SeedEstimate":
        """Average a figure of independent seeds; None is a seed that does not have it."""
        found = tuple(by_seed)
        values = tuple(value for value in found if value is not None)
        if len(values) < len(found):
            values = ()
        mean = seed_mean(values) if values else SeedMean(value=nan, low=None, high=None, seeds=0)
        return cls(
            value=mean.value,
            low=-inf if mean.low is None else mean.low,
            high=inf if mean.high is None else mean.high,
            by_seed=values,
            unit=unit,
            digits=digits,
            signed=signed,
        )

    @classmethod
    def difference(
        cls,
        first: Sequence[float | None],
        second: Sequence[float | None],
        unit: str = "",
        *,
        digits: int = 1,
    ) -> "SeedEstimate":
        """Return how much more the first arm has than the second, paired by seed."""
        pairs = zip(first, second, strict=True)
        apart = (None if a is None or b is None else a - b for a, b in pairs)
        return cls.of(apart, unit, digits=digits, signed=True)

    @property
    def has_interval(self) -> bool:
        """Whether there is more than one seed, and so an interval."""
        return len(self.by_seed) > 1

    def cell(self) -> str:
        """Return the estimate with its interval, as a cell."""
        if not self.by_seed:
            return UNKNOWN
        value = f"{self._number(self.value)}{self.unit and f' {self.unit}'}"
        if not self.has_interval:
            return f"{value} ({NO_INTERVAL})"
        return f"{value} [{self._number(self.low)}, {self._number(self.high)}]"

    def _number(self, value: float) -> str:
        return f"{value:{'+' if self.signed else ''}.{self.digits}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """A paper's finding: its figure in words, and its place, such as `Table 2`, if it has one."""

    statement: str
    place: str = ""

    def cell(self) -> str:
        """Return it as a cell."""
        return f"{self.statement} ({self.place})" if self.place else self.statement


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperClaim:
    """One decidable sentence: it holds if the estimate is above and below these bounds."""

    says: str
    paper: PaperFigure
    estimate: SeedEstimate
    above: float = -inf
    below: float = inf

    def __post_init__(self) -> None:
        """Refuse an empty region, or one that contains everything."""
        if not self.above < self.below or (self.above, self.below) == (-inf, inf):
            raise ValueError(f"{self.says}: a claim must be able to fail, and to hold")

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the whole interval is inside the region, outside of it, or across its edge."""
        estimate = self.estimate
        if not estimate.has_interval:
            return UNDECIDED
        if self.above < estimate.low and estimate.high < self.below:
            return HOLDS
        return FAILS if estimate.high <= self.above or estimate.low >= self.below else UNDECIDED

    @property
    def region(self) -> str:
        """The region in which the claim holds, in words."""
        unit = self.estimate.unit and f" {self.estimate.unit}"
        ends = [
            f"{word} {bound:g}{unit}"
            for word, bound in (("above", self.above), ("below", self.below))
            if abs(bound) < inf
        ]
        return " and ".join(ends)

    def document(self) -> dict[str, Json]:
        """Return the claim as JSON data; missing bounds are null."""
        estimate = self.estimate
        bounds = (estimate.low, estimate.high, self.above, self.below)
        low, high, above, below = (b if abs(b) < inf else None for b in bounds)
        return {
            "says": self.says,
            "paper": {"place": self.paper.place, "said": self.paper.statement},
            "value": None if isnan(estimate.value) else estimate.value,
            "low": low,
            "high": high,
            "unit": estimate.unit,
            "by_seed": list(estimate.by_seed),
            "holds_above": above,
            "holds_below": below,
            "verdict": self.verdict,
        }


def verdict_of(claims: Sequence[PaperClaim]) -> ClaimVerdict:
    """Return whether all claims hold, or one does not; else it is undecided."""
    found = {claim.verdict for claim in claims}
    if FAILS in found:
        return FAILS
    return HOLDS if found == {HOLDS} else UNDECIDED
