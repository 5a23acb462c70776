# pyright: basic
"""Group relative policy optimisation (Shao et al., 2024: DeepSeekMath, Section 4.1).

Each answer's advantage is its reward's distance from its group's mean, in standard deviations, the
same at all its tokens; the KL to the reference is a term of the loss.
"""

from functools import partial

from torch import Tensor, stack

from ...configs.group_methods import GRPOTraining
from ..trainers.sequences import Pass, picked
from . import numerics
from .group_numerics import cut_share, position_weights, relative_advantages
from .group_trainer import GroupLessons, GroupTrainer, LessonBatch
from .groups import AnswerGroups, GroupMeasurements


class GRPOTrainer(GroupTrainer):
    """Learns each answer by its advantage within its group."""

    name = "grpo"
    estimator = "k3"
    terms = ("loss", "loss/policy", "loss/kl", "kl/update", "clipped/policy")
    settings: GRPOTraining

    def lessons(self, groups: AnswerGroups, measured: GroupMeasurements) -> GroupLessons:
        """Return every answer with its advantage."""
        scaled = self.settings.scale == "group"
        compare = partial(relative_advantages, scaled=scaled)
        advantages = groups.compared(groups.rewards, compare)
        return GroupLessons.one_by_one(measured, advantages)

    def loss(self, logprobs: Tensor, work: Pass, told: GroupLessons, batch: LessonBatch) -> Tensor:
        """Return the terms of Eq. 3, negated: the clipped surrogate, and beta times k3 (Eq. 4)."""
        s, measured = self.settings, told.measured
        mask, old = picked(measured.mask, work), picked(measured.logprobs, work)
        advantage = told.advantages_of(work)[:, None]
        high = s.clip if s.clip_high is None else s.clip_high
        weights = position_weights(
            mask,
            s.loss,
            answers=len(batch.lessons),
            tokens=batch.tokens,
            longest=self.environment.online.sampling.max_tokens,
        )
        surrogate = numerics.policy_losses(logprobs, old, advantage, s.clip, high)
        kl = numerics.kl_estimate(logprobs, picked(measured.reference, work), "k3")
        policy, held = (surrogate * weights).sum(), s.kl_coef * (kl * weights).sum()
        cut = cut_share((logprobs - old).exp(), advantage, s.clip, high)
        by_token = mask / batch.tokens
        return stack(
            [
                policy + held,
                policy,
                held,
                (numerics.approximate_kl(logprobs, old) * by_token).sum(),
                (cut * by_token).sum(),
            ]
        )
