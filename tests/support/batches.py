"""Batches as the loop gives them to engines."""

from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
SLICE = 32


def batches(count: int) -> list[Batch]:
    """Return so many requests, named n0, n1 and so on."""
    requests = [
        Request(request_id=f"n{i}", messages=(Message(role="user", content=f"n{i}"),), seed=i)
        for i in range(count)
    ]
    return [
        Batch(key=str(start), requests=tuple(requests[start : start + SLICE]), sampling=SAMPLING)
        for start in range(0, count, SLICE)
    ]
