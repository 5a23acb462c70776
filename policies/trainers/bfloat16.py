# pyright: basic
"""Small steps of training in bfloat16: AdamW with remainders, and stochastic rounding.

A step of 2e-6 vanishes next to a weight of 0.1 in bfloat16, whose neighbours are 5e-4 apart.

While a model is trained in bfloat16, each weight is a float32 in two halves: its bfloat16, used for
computing, and the 16 bits that rounding removed, which the optimizer keeps with its moments. The
update is made in float32 on both halves. A parameter takes 14 bytes: 2 the weight, 2 its gradient,
2 the remainder, 8 the two float32 moments. A parameter in float32 takes 16, and on a GPU 2 more for
a copy used for computing.

When weights are published in fewer bits, rounding to nearest would undo most of the training.
Stochastic rounding takes one of a number's two neighbours, the nearer one more often, so a sum over
many weights keeps the update (arXiv 2010.06192).
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .training_fit import PIECE

HALF = 16
"""Bits of each half."""
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


def split(whole: Tensor) -> tuple[Tensor, Tensor]:
    """Return float32 numbers as their nearest bfloat16 and the missing 16 bits."""
    bits = whole.view(torch.int32)
    upper = (bits + (1 << (HALF - 1))) >> HALF
    lower = (bits - (upper << HALF)).to(BITS)
    return upper.to(BITS).view(torch.bfloat16), lower


def join(weights: Tensor, remainder: Tensor) -> Tensor:
    """Return the float32 numbers that `split` divided, to the bit."""
    upper = weights.view(BITS).to(torch.int32) << HALF
    return (upper + remainder.to(torch.int32)).view(torch.float32)


def split_weights(model: nn.Module) -> None:
    """Make a model's weights bfloat16; their attribute `remainder` keeps the removed bits."""
    with torch.no_grad():
        for parameter in model.parameters():
            narrow, lower = split(parameter.data.float())
            parameter.data = narrow
            _keep(parameter, lower)


def join_weights(model: nn.Module) -> None:
    """Make a model's weights float32 again, as the last update left them."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.grad = None
            parameter.data = join(parameter.data, _remainder(parameter))
            _keep(parameter, None)


def _remainder(parameter: Any) -> Tensor:
    return parameter.remainder.to(parameter.device)


def _keep(parameter: Any, remainder: Tensor | None) -> None:
    parameter.remainder = remainder


class RemainderAdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019) on weights that `split_weights` divided."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the weights by their gradients."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Any, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.float32)
            state["remainder"] = _remainder(parameter)
            _keep(parameter, state["remainder"])
        state["step"] += 1
        parts = (parameter.data, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
        rows = [torch.atleast_1d(part) for part in (*parts, state["remainder"])]
        size = max(1, PIECE * len(rows[0]) // max(1, parameter.numel()))
        for piece in zip(*(part.split(size) for part in rows), strict=True):
            _update_piece(*piece, done=state["step"].item(), group=group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state in the saved types: torch would narrow the moments."""
        super().load_state_dict(state_dict)
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(saved, own, strict=True):
            if number in state_dict["state"]:
                state = self.state[parameter]
                for name, value in state_dict["state"][number].items():
                    state[name] = value if name == "step" else value.to(parameter.device)
                _keep(parameter, state["remainder"])


def _update_piece(
    weights: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    remainder: Tensor,
    *,
    done: float,
    group: dict[str, Any],
) -> None:
    """Make AdamW's step number `done` on some rows of a parameter, in place."""
    beta1, beta2 = group["betas"]
    wide = gradient.float()
    mean.lerp_(wide, 1 - beta1)
    square.mul_(beta2).addcmul_(wide, wide, value=1 - beta2)
    scale = square.sqrt().div_(math.sqrt(1 - beta2**done)).add_(group["eps"])
    whole = join(weights, remainder)
    whole.mul_(1 - group["lr"] * group["weight_decay"])
    whole.addcdiv_(mean, scale, value=-group["lr"] / (1 - beta1**done))
    narrow, lower = split(whole)
    weights.copy_(narrow)
    remainder.copy_(lower)
