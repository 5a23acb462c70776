"""What people said of answers from elsewhere, for a run that learns from it (`annotation.source`).

A run that has it asks no annotators in training.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...stores.keys import Json
from ...stores.schemas import Row

OF_RUN = "run:"
"""What a source begins with that is no file: run:NAME, or run:NAME/TABLE, a derived table of it."""
Comparison = Sequence[Row]
"""The rows of one comparison: a prompt, two answers, the votes on them, and what they decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Comparisons by people: `read` gives them as rows of an iteration; `identity` hashes them."""

    identity: Json
    read: Callable[[int], Iterator[Comparison]]

    def first(self, count: int) -> "Labels":
        """Return the first of them."""

        def few(iteration: int) -> Iterator[Comparison]:
            return islice(self.read(iteration), count)

        return replace(self, read=few)
