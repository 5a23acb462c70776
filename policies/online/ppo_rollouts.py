# pyright: basic
"""A PPO step's rollouts measured under the models before the update, and their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...configs.methods import PPOTraining
from ...stores.records import Rollout
from ..trainers.sequences import Spoken
from .environment import ScoredRollout
from .missing_end import cut_metrics, ruled
from .numerics import masked_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRollouts:
    """B rollouts of T positions: (B, T) each, but for (B,) `whole` and `rewards`.

    `whole` sums the unscaled log-probabilities of an answer's tokens, as engines report them;
    `rewards` are the answers' scores after the rule for those without an end, less the `baseline`
    where rewards are relative: the reference answers' scores after the same rule. `kl` is the
    estimate at each token. `counted` weighs the positions in means.
    """

    mask: Tensor
    counted: Tensor
    logprobs: Tensor
    reference: Tensor
    values: Tensor
    entropy: Tensor
    whole: Tensor
    rewards: Tensor
    baseline: Tensor | None
    kl: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What a PPO step learns from: tokens, measurements, and advantages."""

    spoken: list[Spoken]
    measured: MeasuredRollouts
    advantages: Tensor
    returns: Tensor


def rewards_of(
    rollouts: Sequence[ScoredRollout], settings: PPOTraining, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Return R(x, y), or R(x, y) - R(x, y_ref) and the baseline (ChatGLM-RLHF, Eq. 5).

    R is the score after the rule for answers without an end, which applies to both answers. But
    `below` applies to the difference: whatever its reference, no cut answer beats a finished one.
    """
    rule, penalty = settings.missing_eos, settings.missing_eos_penalty
    whole = [r.ended for r in rollouts]
    by_score = "none" if rule == "below" else rule
    rewards = ruled([r.known_score for r in rollouts], whole, by_score, penalty)
    baseline = [0.0] * len(rollouts)
    if settings.reference_reward:
        references = [r.reference for r in rollouts]
        told = [r.score for r in references], [r.ended for r in references]
        baseline = ruled(*told, by_score, penalty)
    rewards = [reward - other for reward, other in zip(rewards, baseline, strict=True)]
    if rule == "below":
        rewards = ruled(rewards, whole, rule, penalty)
    found = torch.tensor(rewards, device=device)
    return found, torch.tensor(baseline, device=device) if settings.reference_reward else None


def rollout_rows(
    iteration: int,
    step: int,
    rollouts: Sequence[ScoredRollout],
    measured: MeasuredRollouts,
    advantages: Tensor,
) -> list[Rollout]:
    """Return a row for each rollout; sums and moments are over its answer's tokens."""
    mask, tokens = measured.mask, measured.mask.sum(dim=1)
    mean = (advantages * mask).sum(dim=1) / tokens
    spread = (((advantages - mean[:, None]) ** 2 * mask).sum(dim=1) / tokens).sqrt()
    columns = (
        measured.rewards,
        (measured.kl * mask).sum(dim=1),
        measured.logprobs.sum(dim=1),
        measured.reference.sum(dim=1),
        tokens,
        measured.values[:, 0],
        mean,
        spread,
    )
    return [
        Rollout(
            candidate_id=rollout.drawn.candidate_id,
            prompt_id=rollout.drawn.asked.prompt_id,
            iteration=iteration,
            step=step,
            reward=reward,
            kl=kl,
            logprob=logprob,
            reference_logprob=reference,
            tokens=int(count),
            value=value,
            advantage_mean=advantage,
            advantage_std=deviation,
            quantile=None,
        )
        for rollout, (reward, kl, logprob, reference, count, value, advantage, deviation) in zip(
            rollouts, torch.stack(columns, dim=1).tolist(), strict=True
        )
    ]


def relative(rewards: Tensor, baseline: Tensor) -> dict[str, float]:
    """Return metrics of rewards (B,) that are relative to a baseline (B,)."""
    return {
        "reward/raw": float((rewards + baseline).mean()),
        "reward/reference": float(baseline.mean()),
        "reward/std": float(rewards.std(correction=0)),
    }


def describe(
    drawn: Sequence[ScoredRollout], measured: MeasuredRollouts, advantages: Tensor, returns: Tensor
) -> dict[str, float]:
    """Return metrics of a step's rollouts: means by answer or by token."""
    whole = [r.ended for r in drawn if r.trainable]
    scores = [r.score for r in drawn if r.score is not None]
    tokens = [len(r.spoken.answer) for r in drawn]
    error = masked_mean((returns - measured.values) ** 2, measured.mask)
    variance = masked_mean((returns - masked_mean(returns, measured.mask)) ** 2, measured.mask)
    described = {
        "reward": measured.rewards.mean(),
        "kl": (measured.kl * measured.mask).sum(dim=1).mean(),
        "entropy": masked_mean(measured.entropy, measured.mask),
        "values": masked_mean(measured.values, measured.mask),
        "returns": masked_mean(returns, measured.mask),
        "advantages": masked_mean(advantages, measured.mask),
        "explained_variance": 1 - error / variance.clamp(min=1e-12),
    }
    return {name: float(value) for name, value in described.items()} | {
        "score": sum(scores) / len(scores),
        "length": sum(tokens) / len(tokens),
        "tokens": float(sum(tokens)),
        "missing_eos": sum(not r.ended for r in drawn) / len(drawn),
        "unscored": float(sum(r.score is None for r in drawn)),
        **cut_metrics(measured.rewards.tolist(), whole),
    }
