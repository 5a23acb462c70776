# pyright: basic
"""DPO on the policy's own answers, drawn while it trains (Guo et al., 2024).

Of each group the answer with the highest reward is the better half of a pair, that with the lowest
the worse. A group whose answers all have the same reward gives none.
"""

from torch import Tensor, stack, tensor

from ...configs.group_methods import GroupTraining, OnlineDPOTraining
from ..trainers.sequences import Pass, picked
from .group_numerics import best_and_worst, dpo_losses, dpo_margins
from .group_trainer import GroupLessons, GroupTrainer, Lesson, LessonBatch
from .groups import AnswerGroups, GroupMeasurements


class OnlineDPOTrainer(GroupTrainer):
    """Learns the best against the worst answer of each group."""

    name = "online_dpo"
    estimator = "k1"
    terms = (
        *("loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"),
        *("logps/chosen", "logps/rejected"),
    )
    learns_pairs = True
    settings: OnlineDPOTraining

    @staticmethod
    def most_lessons(settings: GroupTraining) -> int:
        """Return how many pairs a step has at most: one a group."""
        return settings.prompts_per_step

    def lessons(self, groups: AnswerGroups, measured: GroupMeasurements) -> GroupLessons:
        """Return a pair of each group that is not even."""
        pairs: list[Lesson] = []
        for group, rewards in zip(groups.groups, groups.grouped_rewards, strict=True):
            found = best_and_worst(rewards)
            if found is not None:
                pairs.append((group[found[0]], group[found[1]]))
        return GroupLessons(measured=measured, lessons=pairs)

    def loss(self, logprobs: Tensor, work: Pass, told: GroupLessons, batch: LessonBatch) -> Tensor:
        """Return the mean over pairs of DPO's loss, and of TRL's numbers about it."""
        row_of = {place: row for row, place in enumerate(work.rows)}
        pairs = [lesson for lesson in batch.lessons if lesson[0] in row_of]
        rows = tensor([row_of[lesson[side]] for side in (0, 1) for lesson in pairs])
        whole = logprobs.sum(dim=1)[rows]
        reference = picked(told.measured.reference, work).sum(dim=1)[rows]
        chosen, rejected = dpo_margins(whole, reference, self.settings.beta)
        sides = whole.chunk(2)
        found = (
            dpo_losses(chosen, rejected),
            *(chosen, rejected, chosen - rejected, (chosen > rejected).float()),
            *sides,
        )
        return stack([values.sum() for values in found]) / len(batch.lessons)
