"""The settings of a recipe that a comparison at equal tokens tries, the preset's first.

Every method gets the same number of trials, because the authors of a comparison know one method
best and tuned its settings longest. A recipe's `TRIALS` list its most important settings, the
learning rate first. They scale the preset's values, as a rate that suits a tiny model ruins a large
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """Settings to try: the preset's, some of them times a factor, some set to a value."""

    times: Mapping[str, float] = field(default_factory=dict[str, float])
    values: Mapping[str, float | str] = field(default_factory=dict[str, float | str])


OWN = TrialSettings()


def rates(method: str) -> tuple[TrialSettings, ...]:
    """Return the preset's own settings, then a larger and a smaller learning rate."""
    rate = f"training.{method}.learning_rate"
    return OWN, TrialSettings(times={rate: 3.0}), TrialSettings(times={rate: 1 / 3})
