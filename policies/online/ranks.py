# pyright: basic
"""The processes that train one policy together: each takes its share of every pass.

What a step depends on (its rollouts, its measurements, its gradients) is the same in all of them
before it is used, so they stay equal without ever comparing weights. The first one draws, scores
and writes files. A process that fails ends them all: the launcher sees to that.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, distributed

Item = TypeVar("Item")


class Ranks:
    """This process's place among those of a training."""

    def __init__(self) -> None:
        together = distributed.is_available() and distributed.is_initialized()
        self.count = distributed.get_world_size() if together else 1
        self.index = distributed.get_rank() if together else 0

    @property
    def is_first(self) -> bool:
        """Whether this process draws, scores and writes."""
        return self.index == 0

    def share(self, items: Sequence[Item]) -> Iterator[tuple[Item, bool]]:
        """Yield this process's items, every `count`-th, so that long and short ones mix.

        All processes get as many, for networks that are divided need them all in each pass: where
        there are too few items it is another one's, which does not count.
        """
        for first in range(0, len(items), self.count):
            place = first + self.index
            counts = place < len(items)
            yield items[place if counts else 0], counts

    def told(self, value: Item | None) -> Item:
        """Return what the first process gives; the others' `value` does not matter."""
        box = [value]
        if self.count > 1:
            distributed.broadcast_object_list(box, src=0)
        (told,) = box
        return told  # pyright: ignore[reportReturnType] -- the first process gives one

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            distributed.barrier()

    def gather(self, *parts: Tensor) -> None:
        """Add up, in place, tensors that hold zeros where another process has the values."""
        if self.count > 1:
            for part in parts:
                distributed.all_reduce(part)

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Average the gradients over all processes, a missing one as zeros."""
        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
            parameter.grad /= self.count
