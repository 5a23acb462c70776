# pyright: basic
"""The formulas of online methods, as functions of tensors: no models, no files, no state.

Shapes: B rollouts of T response positions; `mask` (B, T) is 1 at the answer's tokens, its end token
among them, and 0 after them. Sections and numbers are those of Schulman et al.:
GAE 2016 (arXiv 1506.02438), PPO 2017 (1707.06347); and of AlpacaFarm's Appendix B.
"""

from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k1_clamped", "k3"]
EPSILON = 1e-8
"""Added to a variance before the division by its root."""

CLIPPED_ERROR = 0.2
K_BETA = 0.1
"""Bound of the adaptive coefficient's relative error, and how far a step follows it."""


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the positions where `mask` is 1."""
    return (values * mask).sum() / mask.sum()


def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Return `values` with standard deviation 1, and mean 0 unless `shift_mean` is False.

    Mean and (population) variance are those of the positions where `mask` is 1; all positions are
    transformed.
    """
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    scaled = (values - mean) * torch.rsqrt(variance + EPSILON)
    return scaled if shift_mean else scaled + mean


def whiten_groups(values: Tensor, mask: Tensor, size: int, *, shift_mean: bool = True) -> Tensor:
    """Whiten each group of `size` consecutive rollouts by itself, as AlpacaFarm's devices do."""
    groups = zip(values.split(size), mask.split(size), strict=True)
    return torch.cat([whiten(rows, weights, shift_mean=shift_mean) for rows, weights in groups])


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: KLEstimator) -> Tensor:
    """Return an estimate of KL(policy || reference) at each sampled token, in nats.

    k1 is the log-ratio: unbiased, of either sign. Clamped at 0, as AlpacaFarm's code has it, it is
    biased upwards. k3 = exp(-k1) - 1 + k1 (Schulman, "Approximating KL divergence"): unbiased,
    never negative.
    """
    log_ratio = logprobs - reference
    match estimator:
        case "k1":
            return log_ratio
        case "k1_clamped":
            return log_ratio.clamp(min=0)
        case "k3":
            return torch.expm1(-log_ratio) + log_ratio


def shaped_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Return the reward of each token: -kl_coef · KL, and at the last token the answer's score.

    `scores` is (B,); an answer without tokens gets none of its score.
    """
    rewards = -kl_coef * kl * mask
    last = mask.sum(dim=1).long() - 1
    rows = (last >= 0).nonzero()[:, 0]
    rewards[rows, last[rows]] += scores[rows].to(rewards.dtype)
    return rewards


def advantages(
    rewards: Tensor, values: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return generalised advantage estimates and the returns that the value model learns.

    A_t = d_t + gamma lam A_{t+1} with d_t = r_t + gamma V_{t+1} - V_t, and V behind the last
    position 0 (GAE, Eq. 16); returns are A + V. Positions after an answer's end must have reward
    and value 0 so that they do not count.
    """
    result = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    next_value = torch.zeros_like(values[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        following = delta + gamma * lam * following
        result[:, t] = following
        next_value = values[:, t]
    return result, result + values


def policy_losses(
    logprobs: Tensor, old: Tensor, advantage: Tensor, clip: float, clip_high: float | None = None
) -> Tensor:
    """Return the clipped surrogate loss at each token: PPO's Eq. 7, negated.

    The ratio may have another bound above than below (DAPO, Eq. 8).
    """
    ratio = (logprobs - old).exp()
    clipped = ratio.clamp(1 - clip, 1 + (clip if clip_high is None else clip_high))
    return torch.maximum(-advantage * ratio, -advantage * clipped)


def value_losses(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Return half the squared error at each token, the larger of clipped and unclipped."""
    clipped = torch.clamp(values, min=old - clip, max=old + clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the distribution at each position, in nats; logits are (…, V)."""
    logprobs = logits.log_softmax(dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def approximate_kl(logprobs: Tensor, old: Tensor) -> Tensor:
    """Return ½(log π - log π_old)² at each token: how far inner steps have moved the policy."""
    return 0.5 * (logprobs - old) ** 2


def adapted(kl_coef: float, kl: float, *, target: float) -> float:
    """Return the coefficient after a step whose answers' mean KL was `kl` (Ziegler et al., 2.2).

    It follows the relative error, clipped, as AlpacaFarm's code has it: 1 + 0.1 · clip(…, ±0.2).
    """
    error = min(max(kl / target - 1, -CLIPPED_ERROR), CLIPPED_ERROR)
    return kl_coef * (1 + K_BETA * error)
