# pyright: basic
"""The formulas of methods that compare a prompt's answers: no models, no files, no state.

Shapes: B answers of T positions; `mask` (B, T) is 1 at an answer's tokens. GRPO: Shao et al. 2024
(DeepSeekMath, arXiv 2402.03300), with DAPO (2503.14476) and Dr. GRPO (2503.20783); RLOO: Ahmadian
et al. 2024 (2402.14740); online DPO: Guo et al. 2024 (2402.04792), Rafailov et al. 2023.
"""

import statistics
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LEAST_SPREAD = 1e-4
"""Added to a group's standard deviation: rewards that differ by rounding alone teach nothing."""

Averaging = Literal["answer", "token", "constant"]


def is_even(rewards: Sequence[float]) -> bool:
    """Whether a group's answers all have the same reward, so that none is better than another."""
    return min(rewards) == max(rewards)


def relative_advantages(rewards: Sequence[float], *, scaled: bool) -> list[float]:
    """Return A_i = (r_i - mean(r)) / std(r) of a group's answers (DeepSeekMath, Section 4.1.2).

    Without the division it is Dr. GRPO's (Section 3.2). An even group has advantages of 0.
    """
    if is_even(rewards):
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    spread = statistics.stdev(rewards) + LEAST_SPREAD if scaled else 1.0
    return [(reward - mean) / spread for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Return R_i less the mean of the others' of a group, RLOO's unbiased baseline."""
    total, others = sum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]


def best_and_worst(rewards: Sequence[float]) -> tuple[int, int] | None:
    """Return the places of a group's best and worst answer, the first of equals; None if even."""
    if is_even(rewards):
        return None
    places = range(len(rewards))
    return max(places, key=lambda i: rewards[i]), min(places, key=lambda i: rewards[i])


def position_weights(
    mask: Tensor, averaging: Averaging, *, answers: int, tokens: float, longest: int
) -> Tensor:
    """Return what each position of some of a batch's answers counts in the batch's loss, (b, T).

    `answer`: an answer's mean over its tokens, of which the mean over answers (DeepSeekMath, Eq.
    3). `token`: the mean over the batch's tokens (DAPO, Eq. 8). `constant`: an answer's sum over
    `longest`, the most tokens that one may have, so that its length does not matter (Dr. GRPO).
    """
    match averaging:
        case "answer":
            return mask / mask.sum(dim=1, keepdim=True) / answers
        case "token":
            return mask / tokens
        case "constant":
            return mask / (longest * answers)


def dpo_margins(logprobs: Tensor, reference: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return beta · log(π/π_ref) of chosen and of rejected answers, DPO's implicit rewards.

    Both arguments hold whole answers, the chosen first, then the rejected in the same order.
    """
    chosen, rejected = (beta * (logprobs - reference)).chunk(2)
    return chosen, rejected


def dpo_losses(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return -log sigmoid of the difference of each pair's implicit rewards (DPO, Eq. 7)."""
    return -logsigmoid(chosen - rejected)


def cut_share(ratio: Tensor, advantage: Tensor, clip: float, clip_high: float) -> Tensor:
    """Return 1 where clipping leaves no gradient: the ratio has gone as far as it may."""
    above = (ratio > 1 + clip_high) & (advantage > 0)
    below = (ratio < 1 - clip) & (advantage < 0)
    return torch.logical_or(above, below).float()
