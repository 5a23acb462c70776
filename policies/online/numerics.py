# pyright: basic
"""The formulas of online methods, as functions of tensors: no models, no files, no state.

Shapes: B answers of T positions; `mask` (B, T) is 1 at an answer's tokens, its end token among
them, and 0 after them. V is the size of the vocabulary.

Sources: GAE (Schulman et al., 2016, arXiv 1506.02438), PPO (Schulman et al., 2017, 1707.06347),
AlpacaFarm's Appendix B; Quark (Lu et al., 2022, 2205.13636); GRPO (DeepSeekMath, Shao et al., 2024,
2402.03300) with DAPO (2503.14476) and Dr. GRPO (2503.20783); RLOO (Ahmadian et al., 2024,
2402.14740); online DPO (Guo et al., 2024, 2402.04792; Rafailov et al., 2023).
"""

import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

KLEstimator = Literal["k1", "k1_clamped", "k3"]
Averaging = Literal["answer", "token", "constant"]

EPSILON = 1e-8
"""Added to a variance before the division by its root."""

LEAST_SPREAD = 1e-4
"""Added to a group's standard deviation: rewards that differ only by rounding teach nothing."""


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the positions where `mask` is 1."""
    return (values * mask).sum() / mask.sum()


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the distribution at each position, in nats; logits are (…, V)."""
    logprobs = logits.log_softmax(dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


# The distance to another policy


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


def exact_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """Return KL(policy || reference) at each position, summed over the whole vocabulary."""
    own, other = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (own.exp() * (own - other)).sum(dim=-1)


def approximate_kl(logprobs: Tensor, old: Tensor) -> Tensor:
    """Return ½(log π - log π_old)² at each token: how far inner steps have moved the policy.

    It is k2 of Schulman's "Approximating KL divergence".
    """
    return 0.5 * (logprobs - old) ** 2


# PPO


def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Return `values` with standard deviation 1, and mean 0 unless `shift_mean` is False.

    Mean and (population) variance are taken over the positions where `mask` is 1; all positions are
    transformed.
    """
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    scaled = (values - mean) * torch.rsqrt(variance + EPSILON)
    return scaled if shift_mean else scaled + mean


def shaped_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Return the reward of each token: -kl_coef · KL, and at the last token the answer's score.

    Their sum is R(x, y) of Ziegler et al. (2019, arXiv 1909.08593), Eq. 2. `scores` is (B,); an
    answer without tokens does not get its score.
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

    A_t = d_t + gamma lam A_{t+1} with d_t = r_t + gamma V_{t+1} - V_t, and V after the last
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
    """Return half the squared error at each token: PPO's L^VF (Eq. 9).

    As in OpenAI's code (baselines, ppo2) it is the larger of the clipped and the unclipped one.
    """
    clipped = torch.clamp(values, min=old - clip, max=old + clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return 1 - E[(returns - values)²] / Var[returns] over the positions where `mask` is 1."""
    error = masked_mean((returns - values) ** 2, mask)
    variance = masked_mean((returns - masked_mean(returns, mask)) ** 2, mask)
    return 1 - error / variance.clamp(min=1e-12)


# Quark


class QuarkTerms(NamedTuple):
    """The terms of Quark's loss at each position, (b, W) each, in nats."""

    nll: Tensor
    kl: Tensor
    entropy: Tensor

    def loss(self, *, kl_coef: float, entropy_coef: float) -> Tensor:
        """-log p(y_t) + kl_coef · KL(policy || reference) - entropy_coef · H, (b, W)."""
        return self.nll + kl_coef * self.kl - entropy_coef * self.entropy


def quark_terms(logits: Tensor, reference: Tensor, tokens: Tensor) -> QuarkTerms:
    """Return the terms of Quark's Eq. 2 for `tokens` (b, W), with AlpacaFarm's exact KL.

    Logits are (b, W, V) of the policy and of the reference.
    """
    chosen = logits.gather(-1, tokens[..., None])[..., 0]
    return QuarkTerms(
        nll=logits.logsumexp(dim=-1) - chosen,
        kl=exact_kl(logits, reference),
        entropy=entropy(logits),
    )


def quantiles_of(scores: Sequence[float], count: int) -> list[int]:
    """Return the quantile of each sample, the highest scores in 0, in `count` equal parts.

    Samples of equal score keep the order in which they were drawn.
    """
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    found = [0] * len(scores)
    for rank, place in enumerate(order):
        found[place] = rank * count // len(scores)
    return found


# Methods that compare a prompt's answers


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
    """Return R_i less the mean of the others' of a group (RLOO, Section 2.2)."""
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
    """Return the weight of each position of some of a batch's answers in its loss, (b, T).

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


def cut_share(ratio: Tensor, advantage: Tensor, clip: float, clip_high: float) -> Tensor:
    """Return 1 where clipping removes the gradient: the ratio is beyond its bound."""
    above = (ratio > 1 + clip_high) & (advantage > 0)
    below = (ratio < 1 - clip) & (advantage < 0)
    return torch.logical_or(above, below).float()


def dpo_margins(logprobs: Tensor, reference: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return beta · log(π/π_ref) of chosen and of rejected answers: DPO's Eq. 5, without Z(x).

    Both arguments hold whole answers, the chosen first, then the rejected in the same order.
    """
    chosen, rejected = (beta * (logprobs - reference)).chunk(2)
    return chosen, rejected


def dpo_losses(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return -log sigmoid of the difference of each pair's implicit rewards (DPO, Eq. 7)."""
    return -logsigmoid(chosen - rejected)
