"""The settings that a comparison at equal tokens tries of a recipe, the preset's own first.

Every method gets the same number of trials: those who compare methods know one of them best, and
its settings were tuned for longer. A recipe's `TRIALS` hold what matters most for it, the learning
rate first. They scale what the preset says, as a rate that suits a tiny model ruins a large one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """Settings to try: those of the preset, some of them times a factor, some set to a value."""

    times: Mapping[str, float] = field(default_factory=dict[str, float])
    values: Mapping[str, float | str] = field(default_factory=dict[str, float | str])


OWN = TrialSettings()


def rates(method: str) -> tuple[TrialSettings, ...]:
    """Return the preset's own settings, then a larger and a smaller learning rate."""
    rate = f"training.{method}.learning_rate"
    return OWN, TrialSettings(times={rate: 3.0}), TrialSettings(times={rate: 1 / 3})
