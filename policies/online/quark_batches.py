# pyright: basic
"""Which of Quark's samples each optimizer step learns."""

from collections.abc import Callable

from torch import Tensor

from ...configs.methods import QuarkTraining

Order = Callable[[int], Tensor]
"""The order in which a pass visits the lessons, by the number of the pass from 0."""


def learned(settings: QuarkTraining, drawn: int) -> int:
    """Return how many samples a pass takes in a step that drew `drawn`."""
    return -(-drawn // settings.quantiles) if settings.train_on == "best" else drawn


def planned_updates(settings: QuarkTraining) -> int:
    """Return how many optimizer steps a step makes whose rollouts all can be learned."""
    if settings.gradient_steps:
        return settings.gradient_steps
    return settings.inner_epochs * -(-learned(settings, settings.rollouts) // settings.batch_size)


def batches(settings: QuarkTraining, order: Order, lessons: int, drawn: int) -> list[list[int]]:
    """Return the places of the lessons that each optimizer step learns.

    A pass takes as many as a step that drew `drawn` gives, however large the pool. A fixed number
    of optimizer steps goes round the lessons, each time in a new order.
    """
    steps, size = settings.gradient_steps, settings.batch_size
    if not steps:
        passes = (order(n)[: learned(settings, drawn)] for n in range(settings.inner_epochs))
        return [batch.tolist() for one in passes for batch in one.split(size)]
    rounds = range(-(-steps * size // lessons))
    places = [place for n in rounds for place in order(n).tolist()]
    return [places[first : first + size] for first in range(0, steps * size, size)]
