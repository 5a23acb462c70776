# pyright: basic
"""TRL's trainers of policies, with a next-token loss on people's answers added."""

from typing import Any, cast

from accelerate.utils import DistributedType
from torch import Tensor, nn
from trl.trainer.sft_trainer import SFTTrainer

from ..engines.chat import ChatTokenizer
from .job import SupervisedSet, TrainingError, TrainJob
from .kto_trainer import UnpairedTrainer
from .next_token import METRIC, NextTokenLoss
from .preference_loss import PreferenceTrainer
from .warm_up import WarmedTrainer


class WithNextToken(WarmedTrainer):
    """A trainer that adds the loss once per optimizer step, in its last forward pass.

    So the loss has its weight whatever the number of accumulation passes, and however the method
    itself divides by that number.
    """

    _metrics: dict[str, Any]
    next_token: NextTokenLoss
    _passes = 0

    def add(self, job: TrainJob, supervised: SupervisedSet, chat: ChatTokenizer) -> None:
        """Add the loss of the job's supervised set, before training begins.

        Raises:
            TrainingError: of kind `refused`, where it cannot be added, or the set is empty.
        """
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            raise TrainingError(
                "refused",
                "training.next_token needs a second backward pass a step, which DeepSpeed does not "
                "allow: leave its weight at 0, or train with DDP or FSDP",
            )
        self.next_token = NextTokenLoss(job, supervised, chat, self.accelerator)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Make a forward and a backward pass; return its part of the optimizer step's loss."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._passes += 1
        if self._passes < self.current_gradient_accumulation_steps:
            return loss
        self._passes = 0
        nll = self.next_token.add_gradients(model, self.state.global_step + 1)
        shares = cast("Tensor", self.accelerator.gather(nll))
        self._metrics["train"][METRIC].append(shares.mean().item())
        return loss + (self.next_token.weight * nll).to(loss.dtype)


class DPOWithNextToken(WithNextToken, PreferenceTrainer):
    """Direct preference optimisation with a next-token loss."""


class KTOWithNextToken(WithNextToken, UnpairedTrainer):
    """Kahneman-Tversky optimisation with a next-token loss."""


class SFTWithNextToken(WithNextToken, SFTTrainer):
    """Supervised fine-tuning with a next-token loss on a set of its own."""
