# pyright: basic
"""The warm-up of the learning rate, from a first step that already learns to the peak.

A warm-up over w steps usually rises as 0, 1/w, 2/w, ...: its first step changes nothing, and of a
short training that may be all there is. Here it rises as 1/(w+1), 2/(w+1), ..., and what follows
the warm-up is the schedule as it is usually defined.
"""

from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from trl.trainer.sft_trainer import SFTTrainer

from .kto_trainer import UnpairedTrainer
from .like_lengths import GroupingTrainer
from .preference_loss import PreferenceTrainer

Share = Callable[[int], float]
"""The learning rate after so many steps, as a share of its peak."""


def warmed(warmup: int, later: Share) -> Share:
    """Return a learning rate that rises over `warmup` steps, then is `later`'s."""
    return lambda done: (done + 1) / (warmup + 1) if done < warmup else later(done)


class WarmedTrainer(GroupingTrainer):
    """A trainer whose first step has a learning rate above 0."""

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """Make the schedule of the arguments, with its warm-up as `warmed` has it."""
        if self.lr_scheduler is not None:
            return self.lr_scheduler
        usual = super().create_scheduler(num_training_steps, optimizer)
        warmup = self.args.get_warmup_steps(num_training_steps)
        if warmup and isinstance(usual, LambdaLR):
            self.lr_scheduler = LambdaLR(usual.optimizer, warmed(warmup, usual.lr_lambdas[0]))
        return self.lr_scheduler


class WarmedDPOTrainer(WarmedTrainer, PreferenceTrainer):
    """Direct preference optimisation."""


class WarmedKTOTrainer(WarmedTrainer, UnpairedTrainer):
    """Kahneman-Tversky optimisation."""


class WarmedSFTTrainer(WarmedTrainer, SFTTrainer):
    """Supervised fine-tuning."""
