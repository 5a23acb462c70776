"""The scales of imported ratings: which values are failure (-1), moderate (0) and success (1)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real

from ...stores.records import Rating


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How a given rating becomes a level: at most `failure` is -1, at least `success` is 1."""

    name: str
    low: float
    high: float
    failure: float
    success: float

    def level(self, value: float) -> Rating:
        """Return the level of a value on the scale."""
        return -1 if value <= self.failure else 1 if value >= self.success else 0

    def value(self, level: int) -> float:
        """Return the value for a level on the scale: its lowest, middle or highest value."""
        return (self.low, (self.low + self.high) / 2, self.high)[level + 1]


THREE_LEVEL = "three-level"
SCALES: Mapping[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(name=THREE_LEVEL, low=-1, high=1, failure=-1, success=1),
        Scale(name="1-5", low=1, high=5, failure=2, success=4),
        Scale(name="1-10", low=1, high=10, failure=4, success=8),
        Scale(name="0-10", low=0, high=10, failure=4, success=8),
    )
}


def number(given: object) -> float | None:
    """Return a finite number, or a text that is one; None for anything else.

    The number may be of any type: a Decimal of DuckDB, a scalar of NumPy.
    """
    if isinstance(given, bool) or not isinstance(given, Real | Decimal | str):
        return None
    try:
        value = float(given)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def plain_number(given: object) -> object:
    """Return a value that JSON does not have as a number, or else as a text."""
    value = number(given)
    return str(given) if value is None else value


def as_given(scale: str, ratings: Mapping[str, object]) -> str:
    """Return the note that keeps ratings as given."""
    listed = json.dumps(ratings, ensure_ascii=True, default=plain_number)
    return f"\n\n[as given, on {scale}: {listed}]"
