# pyright: basic
"""Rounding at random: weights that are published in fewer bits keep, on average, what they learned.

A training step at a small learning rate changes most weights by less than half of what bfloat16
resolves. Rounding to nearest would undo these changes. Stochastic rounding takes one of the two
neighbours of a number, each the more often the nearer it is, so a sum over many weights keeps the
update (arXiv 2010.06192).
"""

import torch

SIGN_AND_SIZE = torch.int16
"""Types of 16 bits are read as integers: the next larger size is the next integer."""


def rounded_at_random(weights: torch.Tensor, kind: torch.dtype, seed: int) -> torch.Tensor:
    """Return float32 weights in a type of 16 bits, each rounded to a neighbour drawn by `seed`.

    The expectation of each is the weight itself. Weights that the type has, and those beyond its
    range, are as `Tensor.to` gives them. Another type than one of 16 bits is not rounded at random.
    """
    nearest = weights.to(kind)
    if kind.itemsize != SIGN_AND_SIZE.itemsize or weights.dtype != torch.float32:
        return nearest
    wide = nearest.float()
    outward = weights.abs() >= wide.abs()
    bits = nearest.view(SIGN_AND_SIZE)
    other = torch.where(outward, bits + 1, bits - 1).view(kind)
    # 0 where the type has the weight; at most a half, as `nearest` is the nearer neighbour.
    share = (weights - wide) / (other.float() - wide)
    generator = torch.Generator(weights.device).manual_seed(seed % 2**63)
    drawn = torch.rand(weights.shape, generator=generator, device=weights.device)
    return torch.where((drawn < share) & other.isfinite(), other, nearest)
