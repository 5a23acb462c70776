# pyright: basic
"""Quark: fine-tuning on the best of the policy's samples (Lu et al., 2022; AlpacaFarm, App. B).

A step sorts its samples into quantiles by reward, and learns the best quantile by likelihood,
constrained to the reference by an exact KL. As in AlpacaFarm, each step learns its own samples, and
only the best quantile, so quantiles need no control tokens.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...configs.methods import QuarkTraining
from ..trainers.sequences import Pass, answer_logits
from .numerics import quantiles_of, quark_terms
from .online_trainer import Lesson, Lessons, Measurements, OnlineTrainer, reward_metrics
from .truncation_penalty import apply_rule


class QuarkTrainer(OnlineTrainer[Lessons]):
    """Policy, reference and optimizer, and the step that moves them."""

    name = "quark"
    terms = ("loss", "loss/nll", "kl/update", "entropy/update")
    estimator = None
    settings: QuarkTraining

    @classmethod
    def planned_updates(cls, settings: QuarkTraining) -> int:
        """Return how many optimizer steps a step makes if all its rollouts can be learned."""
        best = -(-settings.rollouts // settings.quantiles)
        return settings.inner_epochs * -(-best // settings.batch_size)

    def advantages(self, measured: Measurements) -> Lessons:
        """Return the best quantile of the step's samples."""
        rollouts = measured.rollouts
        scores = [r.known_score for r in rollouts]
        rewards = apply_rule(scores, [r.ended for r in rollouts], "below")
        quantiles = quantiles_of(rewards, self.settings.quantiles)
        return Lessons(
            measured=measured,
            answers=measured.spoken,
            lessons=[(place,) for place, quantile in enumerate(quantiles) if quantile == 0],
            rewards=rewards,
            columns={"quantile": quantiles},
            metrics=reward_metrics(rollouts, rewards, None),
        )

    def loss(
        self, policy: Any, work: Pass, batch: Sequence[Lesson], learned: Lessons
    ) -> tuple[Tensor, ...]:
        """Return a pass's part of a batch's loss and of its terms."""
        s, temperature = self.settings, self.temperature
        with self.accelerator.autocast():
            with torch.no_grad(), self.networks.reference() as reference:
                other = answer_logits(reference, work)
            logits = answer_logits(policy, work)
        answered = work.mask[:, work.queries :]
        found = quark_terms(logits / temperature, other / temperature, work.answers)
        # After an answer's end there is no token to learn.
        found = found._replace(nll=found.nll * answered)
        loss = found.loss(kl_coef=s.kl_coef, entropy_coef=s.entropy_coef)
        share = 1 / self.positions(batch, learned.answers)
        return tuple((part * answered).sum() * share for part in (loss, *found))
