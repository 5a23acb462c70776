# pyright: basic
"""How far a student's distribution over the next token is from its teacher's, in nats."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Divergence = Callable[[Tensor, Tensor], Tensor]
"""Of log-probabilities (..., V) of teacher p and student q, their divergence (...)."""


def kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p || q) = sum_v p_v (log p_v - log q_v), over the whole vocabulary."""
    return (p.exp() * (p - q)).sum(dim=-1)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(q || p): the student leaves out what the teacher does not say."""
    return kl(q, p)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2: at most log 2."""
    middle = torch.logaddexp(p, q) - math.log(2)
    return (kl(p, middle) + kl(q, middle)) / 2


DIVERGENCES: Mapping[str, Divergence] = {
    "forward_kl": kl,
    "reverse_kl": reverse_kl,
    "jsd": jensen_shannon,
}
"""By the names that `training.distil.divergence` takes."""


def entropy(p: Tensor) -> Tensor:
    """Return -sum_v p_v log p_v of log-probabilities (..., V)."""
    return -(p.exp() * p).sum(dim=-1)
