# pyright: basic
"""Prompts and answers as tensors, and a language model's logits for the answers' tokens.

Prompts are padded on the left, answers on the right, and similar lengths share a pass. A pass
returns results in the rollouts' own order, so that neither grouping nor padding shows. Positions of
an answer count from 0 at its first token; b is a pass's rollouts, W its answers' width, V the
vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PADDING = 0
"""The id of padding: it is always masked, so its value does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """The tokens of a prompt, and the tokens of the answer to it with its end token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass's inputs: ids, attention mask and positions, (b, queries + W) each.

    `rows` are the rollouts' indices in the sequence from which the passes were made.
    """

    rows: list[int]
    ids: Tensor
    mask: Tensor
    positions: Tensor
    queries: int

    @property
    def answers(self) -> Tensor:
        """The answers' tokens, (b, W)."""
        return self.ids[:, self.queries :]


def passes(
    spoken: Sequence[Spoken],
    rows: Iterable[int],
    size: int,
    device: torch.device,
    *,
    width: int | None = None,
) -> list[Pass]:
    """Cut the rollouts at `rows` into passes of at most `size`, each as wide as needed.

    With `width` every answer is padded to that many tokens instead.
    """
    ordered = sorted(rows, key=lambda i: (len(spoken[i].answer), len(spoken[i].prompt), i))
    groups = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    return [pad_rollouts(spoken, group, device, width) for group in groups]


def pad_rollouts(
    spoken: Sequence[Spoken], rows: list[int], device: torch.device, width: int | None = None
) -> Pass:
    """Return the rollouts at `rows`, in this order, as one pass."""
    queries = max(len(spoken[i].prompt) for i in rows)
    answers = width or max(len(spoken[i].answer) for i in rows)
    ids = torch.full((len(rows), queries + answers), PADDING, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, i in enumerate(rows):
        tokens = torch.tensor(spoken[i].prompt + spoken[i].answer)
        first = queries - len(spoken[i].prompt)
        ids[place, first : first + len(tokens)] = tokens
        mask[place, first : first + len(tokens)] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return Pass(
        rows=rows,
        ids=ids.to(device),
        mask=mask.to(device),
        positions=positions.to(device),
        queries=queries,
    )


def answer_mask(spoken: Sequence[Spoken], width: int, device: torch.device) -> Tensor:
    """Return 1 at every answer's tokens and 0 after them, (rollouts, width)."""
    lengths = torch.tensor([len(s.answer) for s in spoken])
    return (torch.arange(width)[None, :] < lengths[:, None]).float().to(device)


def spread(values: Tensor, into: Tensor, work: Pass) -> None:
    """Write a pass's values (b, W) into its rows of `into` (rollouts, T)."""
    into[work.rows, : values.shape[1]] = values.to(into.dtype)


def pick(values: Tensor, work: Pass) -> Tensor:
    """Return the part of `values` (rollouts, T) that belongs to a pass, (b, W)."""
    return values[work.rows, : work.answers.shape[1]]


Measure = Callable[[Pass], tuple[Tensor, ...]]
"""Computed on each pass: any number of values by position, (b, W) each."""


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
