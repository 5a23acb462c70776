# pyright: basic
"""TRL's fused head on a CPU, for the answers' tokens only.

Without Triton, TRL scores every position, those of prompts and padding included, and makes a dozen
passes over each tile of logits. On two cores that took more than half of a DPO step of SmolLM2-135M
(results/benchmarks.md has the figures). Here the logits of the answers are one matrix product, and
the rest runs on a few tokens at a time, so that they fit into the cache.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint
from trl.trainer import utils

PIECE = 256
"""Tokens whose logits are float32 at a time."""


def use_answer_head() -> None:
    """Make TRL's trainers of this process use `AnswerHead`, unless they have a GPU."""
    if not torch.cuda.is_available():
        # TRL then leaves out tokens without a label.
        trl: Any = utils
        trl._use_triton = lambda _device: True  # noqa: SLF001 -- TRL lacks a setting for it
        trl._ChunkedLogProbFunction = AnswerHead  # noqa: SLF001


class AnswerHead:
    """Stands in for TRL's `ChunkedLogProbFunction`."""

    @staticmethod
    def apply(  # noqa: PLR0913, PLR0917 -- TRL's arguments
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        _tile: int,
        softcap: float | None,
        scale: float,
        outputs: Collection[str],
    ) -> tuple[Tensor | None, ...]:
        """Return the results of TRL's kernel for each token, None for those not in `outputs`.

        These are its log-probability, the entropy, the log of the sum of squared probabilities, the
        mean logit, and whether it is the most probable. Only the first can be differentiated: TRL
        logs the others.
        """
        # One product, so that the gradient of the weights is summed before it is rounded.
        kind = hidden.dtype
        logits = linear(hidden, weight.to(kind), None if bias is None else bias.to(kind))

        def scored(part: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            z = scale * part.float()
            z = (z if softcap is None else softcap * torch.tanh(z / softcap)) / temperature
            return (
                -cross_entropy(z, target, reduction="none"),
                *measure_logits(z.detach(), target),
            )

        parts = zip(logits.split(PIECE), targets.split(PIECE), strict=True)
        found: Any = [checkpoint(scored, *part, use_reentrant=False) for part in parts]
        columns = (torch.cat(column) for column in zip(*found, strict=True))
        names = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
        return tuple(c if n in outputs else None for n, c in zip(names, columns, strict=True))


def measure_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return entropy, log of the sum of squared probabilities, mean logit, and the top-1 flag."""
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    squares = (2 * logprobs).logsumexp(-1)
    return entropy, squares, logits.mean(-1), logits.argmax(-1) == targets
