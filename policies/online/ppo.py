# pyright: basic
"""Proximal policy optimisation against a reward model (Schulman et al., 2017; AlpacaFarm, App. B).

Advantages are computed from rewards, KL penalty and values. Policy and value model have one
optimizer, and their gradients are clipped together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...configs.methods import PPOTraining
from ..trainers.sequences import Pass, answer_logits, chosen_logprobs, pick
from . import numerics
from .environment import ScoredRollout
from .networks import ValueModel
from .online_trainer import (
    Lesson,
    Lessons,
    Measurements,
    OnlineTrainer,
    reward_metrics,
)
from .truncation_penalty import apply_rule


@dataclass(frozen=True, kw_only=True)
class PPOLessons(Lessons):
    """Every answer with its advantages, and the returns that the value model learns, (B, T) each.

    `values` are those before the update.
    """

    values: Tensor
    advantages: Tensor
    returns: Tensor


class PPOTrainer(OnlineTrainer[PPOLessons]):
    """Policy, reference, value model and optimizer, and the step that moves them."""

    name = "ppo"
    terms = (
        *("loss", "loss/policy", "kl/update", "clipped/policy", "entropy/update"),
        *("loss/value", "clipped/value"),
    )
    valued = True
    settings: PPOTraining

    @property
    def estimator(self) -> numerics.KLEstimator:
        """How the KL penalty is estimated."""
        return self.settings.kl_estimator

    def measure_pass(self, work: Pass) -> dict[str, Tensor]:
        """Measure a pass under the value model, too."""
        found = super().measure_pass(work)
        with self.accelerator.autocast(), self.networks.value() as value:
            return found | {"values": value(work)}

    def advantages(self, measured: Measurements) -> PPOLessons:
        """Return the (whitened) advantages, and the returns that the value model learns."""
        s, mask, rollouts = self.settings, measured.mask, measured.rollouts
        assert measured.values is not None  # noqa: S101 -- `valued`
        values = measured.values * mask
        scores, baseline = rewards_of(rollouts, s)
        rewards = numerics.shaped_rewards(
            torch.tensor(scores, device=self.device), measured.kl, mask, s.kl_coef
        )
        if s.whiten_rewards == "scale":
            rewards = numerics.whiten(rewards, mask, shift_mean=False) * mask
        advantages, returns = numerics.advantages(rewards, values, gamma=s.gamma, lam=s.lam)
        if s.whiten_advantages == "batch":
            advantages = numerics.whiten(advantages, mask)
        advantages, returns = advantages * mask, returns * mask
        tokens = mask.sum(dim=1)
        mean = (advantages * mask).sum(dim=1) / tokens
        spread = (((advantages - mean[:, None]) ** 2 * mask).sum(dim=1) / tokens).sqrt()
        return PPOLessons(
            answers=measured.spoken,
            lessons=[(place,) for place in range(len(rollouts))],
            rewards=scores,
            columns={
                "value": values[:, 0].tolist(),
                "advantage_mean": mean.tolist(),
                "advantage_std": spread.tolist(),
            },
            metrics={
                "kl_coef": s.kl_coef,
                "values": float(numerics.masked_mean(values, mask)),
                "returns": float(numerics.masked_mean(returns, mask)),
                "advantages": float(numerics.masked_mean(advantages, mask)),
                "explained_variance": float(numerics.explained_variance(values, returns, mask)),
                **reward_metrics(rollouts, scores, baseline),
            },
            measured=measured,
            values=values,
            advantages=advantages,
            returns=returns,
        )

    def backward(
        self, work: Pass, scale: float, batch: Sequence[Lesson], learned: PPOLessons
    ) -> Tensor:
        """Add a pass's gradients of the policy and of the value model; return its `terms`."""
        terms = super().backward(work, scale, batch, learned)
        weight = self.settings.vf_coef
        with self.networks.value() as model:
            loss, clipped = self.value_loss(model, work, batch, learned)
            (weight * loss * scale).backward()
        terms[0] += weight * loss.detach()
        return torch.cat([terms, torch.stack([loss, clipped]).detach()])

    def loss(
        self, policy: Any, work: Pass, batch: Sequence[Lesson], learned: PPOLessons
    ) -> tuple[Tensor, ...]:
        """Return the loss, policy loss, KL to the policy before, clipping and entropy."""
        s, measured = self.settings, learned.measured
        mask, share = pick(measured.mask, work), self.share(work, batch, learned)
        with self.accelerator.autocast():
            logits = answer_logits(policy, work)
        logprobs = chosen_logprobs(logits, work.answers, self.temperature) * mask
        old, advantage = pick(measured.logprobs, work), pick(learned.advantages, work)
        losses = numerics.policy_losses(logprobs, old, advantage, s.clip)
        clipped = ((logprobs - old).exp() - 1).abs() > s.clip
        if s.entropy_coef:
            entropy = numerics.entropy(logits / self.temperature) * mask
        else:
            entropy = torch.zeros_like(losses)
        parts = (
            losses - s.entropy_coef * entropy,
            losses,
            numerics.approximate_kl(logprobs, old),
            clipped.float(),
            entropy,
        )
        return tuple((part * share).sum() for part in parts)

    def value_loss(
        self, model: ValueModel, work: Pass, batch: Sequence[Lesson], learned: PPOLessons
    ) -> tuple[Tensor, Tensor]:
        """Return a pass's part of a batch's value loss and of its clipping."""
        share, clip = self.share(work, batch, learned), self.settings.value_clip
        with self.accelerator.autocast():
            values = model(work)
        old, returns = pick(learned.values, work), pick(learned.returns, work)
        losses = numerics.value_losses(values, old, returns, clip)
        clipped = ((values - old).abs() > clip).float()
        return (losses * share).sum(), (clipped * share).sum()

    def share(self, work: Pass, batch: Sequence[Lesson], learned: PPOLessons) -> Tensor:
        """Return the weight of each of a pass's positions in its batch's means, (b, W)."""
        return pick(learned.measured.mask, work) / self.positions(batch, learned.answers)


def rewards_of(
    rollouts: Sequence[ScoredRollout], settings: PPOTraining
) -> tuple[list[float], list[float] | None]:
    """Return R(x, y), or R(x, y) - R(x, y_ref) and the baseline (ChatGLM-RLHF, Eq. 5).

    R is the score after the rule for answers without an end, which applies to both answers. But
    `below` applies to the difference: for any reference, no cut answer beats a complete one.
    """
    rule, penalty = settings.missing_eos, settings.missing_eos_penalty
    ended = [r.ended for r in rollouts]
    by_score = "none" if rule == "below" else rule
    rewards = apply_rule([r.known_score for r in rollouts], ended, by_score, penalty)
    baseline = None
    if settings.reference_reward:
        references = [r.reference for r in rollouts]
        whole = [r.ended for r in references]
        baseline = apply_rule([r.score for r in references], whole, by_score, penalty)
        rewards = [reward - other for reward, other in zip(rewards, baseline, strict=True)]
    if rule == "below":
        rewards = apply_rule(rewards, ended, rule, penalty)
    return rewards, baseline
