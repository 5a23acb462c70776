# pyright: basic
"""The processes that train one policy together: each takes its share of every pass.

Rollouts, measurements and averaged gradients are the same in all processes, so their weights stay
equal without being compared. The first process samples, scores and writes files. If one process
fails, the launcher ends them all.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, distributed

Item = TypeVar("Item")

BUCKET = 25_000_000
"""Elements of the gradients that are reduced in one call, as many as in a bucket of DDP."""


class Ranks:
    """This process's index among the processes of a training."""

    def __init__(self) -> None:
        together = distributed.is_available() and distributed.is_initialized()
        self.count = distributed.get_world_size() if together else 1
        self.index = distributed.get_rank() if together else 0

    @property
    def is_first(self) -> bool:
        """Whether this process samples, scores and writes."""
        return self.index == 0

    def share(self, items: Sequence[Item]) -> Iterator[tuple[Item, bool]]:
        """Yield this process's items, every `count`-th, and whether each counts.

        All processes get equally many, because sharded networks need all of them in each pass. A
        process that has too few repeats the first item, which then does not count.
        """
        for first in range(0, len(items), self.count):
            place = first + self.index
            counts = place < len(items)
            yield items[place if counts else 0], counts

    def broadcast(self, value: Item | None) -> Item:
        """Return the first process's `value` in all processes."""
        box = [value]
        if self.count > 1:
            distributed.broadcast_object_list(box, src=0)
        (sent,) = box
        return sent  # pyright: ignore[reportReturnType] -- the first process gives one

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            distributed.barrier()

    def sum(self, *tensors: Tensor) -> None:
        """Add up tensors over all processes, in place."""
        if self.count > 1:
            for tensor in tensors:
                distributed.all_reduce(tensor)

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Average the gradients over all processes, bucket by bucket; a missing one counts as 0."""
        if self.count == 1:
            return
        gradients: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        for bucket in buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            distributed.all_reduce(flat)
            flat /= self.count
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


def buckets(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Cut tensors into runs of one type and of `BUCKET` elements, or of one larger tensor."""
    found: list[list[Tensor]] = []
    size = 0
    for tensor in tensors:
        size += tensor.numel()
        if not found or tensor.dtype != found[-1][-1].dtype or size > BUCKET:
            found.append([])
            size = tensor.numel()
        found[-1].append(tensor)
    return found
