# pyright: basic
"""DPO and KTO by TRL's trainers, with the parts that TRL leaves to its caller.

DPO: if chosen and rejected answers share most of their tokens, Eq. 3 can lower the probability of
both, since only their difference counts. So each step logs the log-probabilities of both sides and
the reference's, and the penalty of DPO-Positive (Pal et al., 2024, arXiv 2402.13228) can hold the
chosen up.

KTO (Ethayarajh et al., 2024): TRL takes the rows in the order in which it gets them, and measures
the KL of Eq. 7 on the prompts of a forward pass, each with the answer of the row before it. Another
answer to the same prompt does not measure that KL, so the order drawn here repeats a prompt within
a pass only if it must. The weights of Eq. 8 are balanced here, and logged.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

from ...configs.methods import DPOTraining, KTOTraining
from .base_trainer import BaseTrainer
from .job import TrainingError, TrainJob
from .rows import ASKED
from .work_folder import BELOW, TOKEN

SIDES = ("ref_chosen_logps", "ref_rejected_logps")
"""TRL's columns of the reference's log-probabilities of a pair's answers."""
WEIGHTS = ("weights/desirable", "weights/undesirable")
"""The metrics lambda_D and lambda_U."""
AHEAD = 8
"""How many passes ahead to search for rows with prompts that a pass does not have yet."""


class Recorded:
    """A model that keeps the log-probabilities of its last call, which TRL's loss makes."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.logprobs = torch.empty(0)

    def __call__(self, **arguments: Any) -> Any:
        """Call the model."""
        outputs = self.model(**arguments)
        self.logprobs = outputs.log_probs
        return outputs


class PreferenceTrainer(BaseTrainer, DPOTrainer):
    """TRL's DPO with the metrics of both sides, and `chosen_penalty`."""

    chosen_penalty = 0.0

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **others: Any
    ) -> Tensor:
        """Return TRL's loss, with DPO-Positive's instead of Eq. 3 if there is a penalty."""
        recorded: Any = Recorded(model)
        loss = super().compute_loss(recorded, inputs, *rest, **others)
        policy = recorded.logprobs.sum(dim=1)
        reference = torch.cat([inputs[side] for side in SIDES])
        tokens = inputs["completion_mask"][:, 1:].sum(dim=1).clamp(min=1)
        self._log_sides("train" if model.training else "eval", policy.detach(), reference, tokens)
        if self.chosen_penalty:
            loss = loss + positive_loss(policy - reference, self.beta, self.chosen_penalty)
        return loss

    def _log_sides(self, mode: str, policy: Tensor, reference: Tensor, tokens: Tensor) -> None:
        per_token = torch.stack([policy / tokens, reference / tokens])
        sides = torch.cat(per_token.chunk(2, dim=1))  # a row for each name of TOKEN
        below = (sides[0] < sides[1]).to(sides.dtype)
        pairs = torch.cat([sides, below[None]]).T.contiguous()
        means = cast("Tensor", self.accelerator.gather(pairs)).mean(dim=0).tolist()
        for name, value in zip((*TOKEN, BELOW), means, strict=True):
            self._metrics[mode][name].append(value)


def positive_loss(ratios: Tensor, beta: float, penalty: float) -> Tensor:
    """Return DPO-Positive's mean loss, from the log-ratios of all chosen, then all rejected."""
    chosen, rejected = ratios.chunk(2)
    return -logsigmoid(beta * (chosen - rejected - penalty * torch.relu(-chosen))).mean()


def preference_arguments(s: DPOTraining, common: dict[str, Any]) -> DPOConfig:
    """Return DPO's arguments; with a penalty, TRL computes the next-token loss only."""
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


class UnpairedTrainer(BaseTrainer, KTOTrainer):
    """TRL's KTO with the weights of Eq. 8 among its metrics."""

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **others: Any
    ) -> Tensor:
        """Return TRL's loss."""
        metrics = self._metrics["train" if model.training else "eval"]
        weights = (self.desirable_weight, self.undesirable_weight)
        for name, weight in zip(WEIGHTS, weights, strict=True):
            metrics[name].append(weight)
        return super().compute_loss(model, inputs, *rest, **others)


def kto_arguments(s: KTOTraining, common: dict[str, Any], labels: Sequence[bool]) -> KTOConfig:
    """Return KTO's arguments for rows with these labels."""
    return KTOConfig(
        beta=s.beta,
        loss_type=s.loss,
        desirable_weight=desirable_weight(s, labels),
        undesirable_weight=s.undesirable_weight,
        precompute_ref_log_probs=True,
        **common,
    )


def desirable_weight(s: KTOTraining, labels: Sequence[bool]) -> float:
    """Return lambda_D: the setting, or else lambda_U n_U / n_D (Eq. 8 at its lower end).

    Raises:
        TrainingError: of kind `refused`, if successes or failures are missing.
    """
    successes = sum(labels)
    failures = len(labels) - successes
    if not (successes and failures):
        raise TrainingError(
            "refused",
            f"KTO learns from successes and failures, and there are {successes} and {failures}",
        )
    if s.desirable_weight != "auto":
        return s.desirable_weight
    return s.undesirable_weight * failures / successes


def mismatch_rows(job: TrainJob, data: Dataset) -> Dataset:
    """Return the rows in the order in which KTO trains on them."""
    order = mismatched_order(data[ASKED], job.settings.micro_batch_size, job.seed)
    return data.select(order).remove_columns(ASKED)


def mismatched_order(prompts: Sequence[str], together: int, seed: int) -> list[int]:
    """Return the indices of rows in a random order, `together` of them a pass.

    A pass has rows of different prompts, if the next `AHEAD` passes have enough of them. A last row
    that would be alone in its pass is left out: it would lack another prompt's answer.
    """
    names = list(prompts)
    waiting = deque(random.Random(seed).sample(range(len(names)), len(names)))
    order: list[int] = []
    while waiting:
        near = [waiting.popleft() for _ in range(min(len(waiting), AHEAD * together))]
        of_each: dict[str, int] = {}
        for row in near:
            of_each.setdefault(names[row], row)
        others = [row for row in near if of_each[names[row]] != row]
        chosen = [*of_each.values(), *others][:together]
        taken = {*chosen}
        order += chosen
        waiting.extendleft(row for row in reversed(near) if row not in taken)
    alone = together > 1 and len(order) % together == 1
    return order[:-1] if alone else order
