# pyright: basic
"""Stochastic rounding of weights that are published in 16 bits.

A step of 2e-6 vanishes next to a weight of 0.1 in bfloat16, whose neighbours are 5e-4 apart:
rounding to nearest would undo most of a training. Stochastic rounding takes one of a number's two
neighbours, the nearer one more often, so a sum over many weights keeps the update (arXiv
2010.06192).
"""

import torch
from torch import Tensor

BITS = torch.int16
"""Types of 16 bits are read as integers: the next larger number is the next integer."""


def rounded_at_random(weights: Tensor, kind: torch.dtype, seed: int) -> Tensor:
    """Return float32 weights in a type of 16 bits, each rounded to a neighbour drawn by `seed`.

    The expectation of each is the weight itself. Weights that the type can represent, and weights
    outside its range, are converted as by `Tensor.to`. Types of other sizes are rounded to nearest.
    """
    nearest = weights.to(kind)
    if kind.itemsize != BITS.itemsize or weights.dtype != torch.float32:
        return nearest
    wide = nearest.float()
    outward = weights.abs() >= wide.abs()
    bits = nearest.view(BITS)
    other = torch.where(outward, bits + 1, bits - 1).view(kind)
    # 0 if the type has the weight; at most a half, as `nearest` is the nearer neighbour.
    share = (weights - wide) / (other.float() - wide)
    generator = torch.Generator(weights.device).manual_seed(seed % 2**63)
    drawn = torch.rand(weights.shape, generator=generator, device=weights.device)
    return torch.where((drawn < share) & other.isfinite(), other, nearest)
