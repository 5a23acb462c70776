# pyright: basic
"""A causal language model's logits for existing answers, and log-probabilities in nats."""

from typing import Any

import torch
from torch import Tensor

from .sequences import Pass


def answer_logits(model: Any, work: Pass) -> Tensor:
    """Return the logits of each of the answers' tokens, (b, W, V), in float32 or better."""
    kept = work.answers.shape[1] + 1
    output = model(
        input_ids=work.ids,
        attention_mask=work.mask,
        position_ids=work.positions,
        logits_to_keep=kept,
        use_cache=False,
    )
    logits = output.logits[:, -kept:-1]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def chosen_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return the log-probability of each token under the logits at a temperature, in nats."""
    scaled = logits / temperature if temperature != 1 else logits
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.logsumexp(dim=-1)
