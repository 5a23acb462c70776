# pyright: basic
"""KTO (Ethayarajh et al., 2024): what TRL's trainer leaves to who calls it.

TRL takes the rows in the order in which it is given them, and measures the KL of Eq. 7 on the
prompts of a forward pass, each with the answer of the row before it. So the order is drawn here,
such that a pass has no prompt twice where that can be: another answer to the same prompt says
nothing about the KL. The weights of Eq. 8 are balanced here, and told beside TRL's numbers.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from torch import Tensor, nn
from trl.trainer.kto_config import KTOConfig

from ...configs.methods import KTOTraining
from .job import TrainingError, TrainJob
from .reference_logprobs import ReferencedKTOTrainer

LABEL, ASKED = "label", "prompt_id"
WEIGHTS = ("weights/desirable", "weights/undesirable")
"""lambda_D and lambda_U, as they are told with each step."""
AHEAD = 8
"""So many passes ahead are rows looked for whose prompts a pass does not have yet."""


class UnpairedTrainer(ReferencedKTOTrainer):
    """TRL's trainer with the weights of Eq. 8 among its metrics."""

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **others: Any
    ) -> Tensor:
        """Return TRL's loss."""
        told = self._metrics["train" if model.training else "eval"]
        for name, weight in zip(
            WEIGHTS, (self.desirable_weight, self.undesirable_weight), strict=True
        ):
            told[name].append(weight)
        return super().compute_loss(model, inputs, *rest, **others)


def kto_arguments(s: KTOTraining, common: dict[str, Any], labels: Sequence[bool]) -> KTOConfig:
    """Return TRL's arguments for rows with these labels."""
    return KTOConfig(
        beta=s.beta,
        loss_type=s.loss,
        desirable_weight=desirable_weight(s, labels),
        undesirable_weight=s.undesirable_weight,
        precompute_ref_log_probs=True,
        **common,
    )


def desirable_weight(s: KTOTraining, labels: Sequence[bool]) -> float:
    """Return lambda_D: what is configured, or else lambda_U n_U / n_D (Eq. 8 at its lower end).

    Raises:
        TrainingError: of kind `refused`, if not both kinds of answers are there.
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


def mismatched(job: TrainJob, data: Dataset) -> Dataset:
    """Return the rows in the order in which they are trained."""
    together = job.settings.micro_batch_size
    order = mismatched_order(data[ASKED], together, job.seed)
    return data.select(order).remove_columns(ASKED)


def mismatched_order(prompts: Sequence[str], together: int, seed: int) -> list[int]:
    """Return the places of rows in a random order, `together` of them a pass.

    A pass has rows of different prompts, as far as there are some nearby. A last row that would be
    alone in its pass is left out: there is no other answer to its prompt's.
    """
    asked = list(prompts)
    waiting = deque(random.Random(seed).sample(range(len(asked)), len(asked)))
    order: list[int] = []
    while waiting:
        near = [waiting.popleft() for _ in range(min(len(waiting), AHEAD * together))]
        of_each: dict[str, int] = {}
        for row in near:
            of_each.setdefault(asked[row], row)
        others = [row for row in near if of_each[asked[row]] != row]
        chosen = [*of_each.values(), *others][:together]
        taken = {*chosen}
        order += chosen
        waiting.extendleft(row for row in reversed(near) if row not in taken)
    alone = together > 1 and len(order) % together == 1
    return order[:-1] if alone else order
