# pyright: basic
"""REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024).

A whole answer is one action: its reward has the KL to the reference taken off, and what the other
answers to its prompt got on average is its baseline. The first update of a step is REINFORCE as it
is; later ones weigh an answer by the ratio of its probabilities, clipped as PPO's.
"""

from torch import Tensor, stack

from ...configs.group_methods import RLOOTraining
from ..trainers.sequences import Pass, picked
from . import numerics
from .group_numerics import cut_share, leave_one_out
from .group_trainer import GroupLessons, GroupTrainer, LessonBatch
from .groups import AnswerGroups, GroupMeasurements


class RLOOTrainer(GroupTrainer):
    """Learns each answer by its reward less the mean of the others'."""

    name = "rloo"
    estimator = "k1"
    terms = ("loss", "kl/update", "clipped/policy")
    settings: RLOOTraining

    def lessons(self, groups: AnswerGroups, measured: GroupMeasurements) -> GroupLessons:
        """Return every answer with its advantage: of r(x, y) - beta log(π/π_ref), summed."""
        penalties = (self.settings.kl_coef * measured.kl.sum(dim=1)).tolist()
        shaped = [r - penalty for r, penalty in zip(groups.rewards, penalties, strict=True)]
        return GroupLessons.one_by_one(measured, groups.compared(shaped, leave_one_out))

    def loss(self, logprobs: Tensor, work: Pass, told: GroupLessons, batch: LessonBatch) -> Tensor:
        """Return the mean over answers of the clipped surrogate of their whole probabilities."""
        clip, answers = self.settings.clip, len(batch.lessons)
        old = picked(told.measured.logprobs, work)
        whole, before = logprobs.sum(dim=1), old.sum(dim=1)
        advantage = told.advantages_of(work)
        losses = numerics.policy_losses(whole, before, advantage, clip)
        cut = cut_share((whole - before).exp(), advantage, clip, clip)
        return stack(
            [
                losses.sum() / answers,
                numerics.approximate_kl(logprobs, old).sum() / batch.tokens,
                cut.sum() / answers,
            ]
        )
