# pyright: basic
"""DPO's loss beside TRL's: the penalty of DPO-Positive, and how probable the answers stay.

Where chosen and rejected answers share most of their tokens, Eq. 3 can lower the probability of
both: only their difference counts. So each step tells the log-probabilities of both sides beside
the reference's, and a penalty can hold the chosen up (Pal et al., 2024, arXiv 2402.13228).
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from trl.trainer.dpo_config import DPOConfig

from ...configs.methods import DPOTraining
from .reference_logprobs import SIDES, ReferencedDPOTrainer
from .work_folder import BELOW, TOKEN


class Heard:
    """A model that keeps what it said last of each token, for who calls it through another."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.logprobs = torch.empty(0)

    def __call__(self, **arguments: Any) -> Any:
        """Call the model."""
        outputs = self.model(**arguments)
        self.logprobs = outputs.log_probs
        return outputs


class PreferenceTrainer(ReferencedDPOTrainer):
    """TRL's trainer with the metrics of both sides, and the penalty where the job has one."""

    chosen_penalty = 0.0

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **others: Any
    ) -> Tensor:
        """Return TRL's loss, with DPO-Positive's in place of Eq. 3 if it is asked for."""
        heard: Any = Heard(model)
        loss = super().compute_loss(heard, inputs, *rest, **others)
        policy = heard.logprobs.sum(dim=1)
        reference = torch.cat([inputs[side] for side in SIDES])
        tokens = inputs["completion_mask"][:, 1:].sum(dim=1).clamp(min=1)
        self._tell("train" if model.training else "eval", policy.detach(), reference, tokens)
        if self.chosen_penalty:
            loss = loss + positive_loss(policy - reference, self.beta, self.chosen_penalty)
        return loss

    def _tell(self, mode: str, policy: Tensor, reference: Tensor, tokens: Tensor) -> None:
        told = torch.stack([policy / tokens, reference / tokens])
        sides = torch.cat(told.chunk(2, dim=1))  # a row for each name of TOKEN
        below = (sides[0] < sides[1]).to(sides.dtype)
        pairs = torch.cat([sides, below[None]]).T.contiguous()
        means = cast("Tensor", self.accelerator.gather(pairs)).mean(dim=0).tolist()
        for name, value in zip((*TOKEN, BELOW), means, strict=True):
            self._metrics[mode][name].append(value)


def positive_loss(ratios: Tensor, beta: float, penalty: float) -> Tensor:
    """Return the mean loss of DPO-Positive of the log-ratios of all chosen, then all rejected."""
    chosen, rejected = ratios.chunk(2)
    return -logsigmoid(beta * (chosen - rejected - penalty * torch.relu(-chosen))).mean()


def preference_arguments(s: DPOTraining, common: dict[str, Any]) -> DPOConfig:
    """Return TRL's arguments; of Eq. 3 with a penalty it adds up the next-token loss alone."""
    losses = {} if s.chosen_penalty else {s.loss: 1.0}
    if s.sft_weight or not losses:
        losses["sft"] = s.sft_weight
    return DPOConfig(
        beta=s.beta,
        loss_type=list(losses),
        loss_weights=list(losses.values()),
        label_smoothing=s.label_smoothing,
        precompute_ref_log_probs=True,
        **common,
    )
