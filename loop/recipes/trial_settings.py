"""The settings of a recipe that a comparison at equal tokens tries, the preset's first.

Every method gets the same number of trials, because the authors of a comparison know one method
best and tuned its settings longest. A recipe's `TRIALS` list its most important settings, the
learning rate first. They scale the preset's values, as a rate that suits a tiny model ruins a large
one.
"""

from collections.abc import Mapping

Trial = Mapping[str, float]
"""A factor for some of the preset's settings, by their paths."""


def trials(method: str, last: Trial) -> tuple[Trial, ...]:
    """Return the preset's own settings, a larger and a smaller learning rate, and `last`."""
    rate = f"training.{method}.learning_rate"
    return {}, {rate: 3.0}, {rate: 1 / 3}, last
