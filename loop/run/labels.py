"""Comparisons of other answers by people, as training data of a run (`annotation.source`).

A run with such a source uses no annotators in training.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...stores.keys import Json
from ...stores.schemas import Row

OF_RUN = "run:"
"""The prefix of a source that is not a file: run:NAME, or run:NAME/TABLE for a derived table."""
Comparison = Sequence[Row]
"""The rows of one comparison: a prompt, two answers, the votes on them, and the decision."""


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
