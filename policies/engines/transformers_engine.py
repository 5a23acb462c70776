# pyright: basic
"""Models that transformers holds, and sampling with transformers alone, for machines without vLLM.

transformers' continuous batching (`model.generate_batch`) seeds one generator for the whole
process, so a request's draw would depend on its neighbours and their order. Here a plain loop over
the forward pass with a KV cache draws a batch, and every request has its own random numbers: one
uniform number a token, from Python's generator under the request's whole seed, looked up in the
distribution's cumulative sum in vocabulary order.

Requests of different batches never share a forward pass, and a batch is cut into the same groups
every time, so its results depend on nothing else. In other groups the logits could differ in their
last bits: a token would change only if its number falls within about 1e-7 of a boundary.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...configs.schema import EngineConfig
from ...stores.records import Message
from ..devices import cpu_type
from .chat import ChatTokenizer
from .chat_template import template_text
from .engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from .thinking import ChatForm

if TYPE_CHECKING:
    import torch

GROUP = 64
"""Requests of one batch drawn together; fixed, so that results never depend on a setting."""


def load_model(
    auto_class: Any, folder: Path | str, dtype: str, device: "torch.device", **options: Any
) -> Any:
    """Load weights from a local folder: no network, no pickles, no code from the folder.

    "auto" is `cpu_type` on a CPU and the checkpoint's own type elsewhere.
    """
    resolved = cpu_type() if dtype == "auto" and device.type == "cpu" else dtype
    model = auto_class.from_pretrained(
        str(folder),
        dtype=resolved,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        **options,
    )
    return model.to(device).eval()


def pick_device() -> "torch.device":
    """Return the first GPU, or the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pad_rows(
    rows: Sequence[Sequence[int]], pad: int = 0, *, left: bool = False
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the token ids of rows, filled up with `pad`, and their attention mask."""
    import torch

    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for place, row in enumerate(rows):
        columns = slice(width - len(row), None) if left else slice(len(row))
        ids[place, columns] = torch.tensor(row, dtype=torch.long)
        mask[place, columns] = 1
    return ids, mask


class TransformersModel:
    """A model of transformers in this process, on the first GPU or the CPU.

    A model that `scores` has float32 on a CPU and bfloat16 on a GPU unless a type is configured.
    """

    def __init__(
        self, auto_class: Any, folder: Path | str, dtype: str, *, scores: bool = False
    ) -> None:
        device = pick_device()
        if scores and dtype == "auto":
            dtype = "float32" if device.type == "cpu" else "bfloat16"
        self.device = str(device)
        self.sleeps = device.type != "cpu"
        self._model = load_model(auto_class, folder, dtype, device)

    def sleep(self) -> None:
        """Move the weights into the machine's memory, and free the device's."""
        import torch

        self._model.to("cpu")
        torch.cuda.empty_cache()

    def wake(self) -> None:
        """Move the weights back to the device; do nothing if they are there."""
        self._model.to(self.device)

    def close(self) -> None:
        """Release the model."""
        del self._model

    def _context(self, *limits: int | None) -> int:
        """Return the smallest of the limits and the model's own, in tokens."""
        own = getattr(self._model.config, "max_position_embeddings", None)
        return min(limit for limit in (*limits, own, 2**31) if limit is not None)


@dataclass(slots=True)
class _BatchRow:
    """A request that is being drawn."""

    index: int
    request: Request
    prompt: tuple[int, ...]
    limit: int
    uniform: random.Random
    drawn: list[int] = field(default_factory=list)
    logprob: float = 0.0
    stopped: bool = False

    @property
    def finished(self) -> bool:
        return self.stopped or len(self.drawn) >= self.limit


class TransformersEngine(TransformersModel):
    """Draws completions of a causal language model."""

    window = 2 * GROUP  # one group runs while the next one waits

    def __init__(self, model: str, config: EngineConfig) -> None:
        from transformers import AutoModelForCausalLM

        super().__init__(AutoModelForCausalLM, model, config.dtype)
        self._dtype = config.dtype
        template = template_text(config.template)
        self._chat = ChatTokenizer.of(Path(model), template, ChatForm.of(config))
        self._longest = self._context(config.context)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`, batch after batch."""
        for batch in batches:
            sampling = batch.sampling
            done: dict[int, Completion] = {}
            rows: list[_BatchRow] = []
            for index, request in enumerate(batch.requests):
                prompt = self._chat.admit(request, self._longest)
                if isinstance(prompt, Completion):
                    done[index] = prompt
                else:
                    limit = min(sampling.max_tokens, self._longest - len(prompt))
                    rows.append(
                        _BatchRow(index, request, prompt, limit, random.Random(request.seed))
                    )
            rows.sort(key=lambda row: (len(row.prompt), row.index))
            for start in range(0, len(rows), GROUP):
                group = rows[start : start + GROUP]
                self._draw(group, sampling)
                for row in group:
                    done[row.index] = self._chat.completion(
                        row.request, sampling, row.prompt, row.drawn, row.logprob
                    )
            yield BatchResult(key=batch.key, answers=tuple(done[i] for i in range(len(done))))

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation in a separate forward pass."""
        return [
            measure(self._model, *self._chat.split_answer(messages), context=self._longest)
            for messages in conversations
        ]

    def reload(self, folder: Path) -> None:
        """Load the weights of another folder with the same architecture and tokenizer."""
        import torch
        from transformers import AutoModelForCausalLM

        del self._model
        self._model = load_model(
            AutoModelForCausalLM, folder, self._dtype, torch.device(self.device)
        )

    def configure(self, config: EngineConfig) -> None:
        """Do nothing: a loaded model is without live settings."""

    def _draw(self, group: list[_BatchRow], sampling: Sampling) -> None:
        """Extend every row of a group until it stops; finished rows leave the forward pass."""
        import torch
        from transformers import DynamicCache

        active = list(group)
        biases = self._chat.biases(sampling.logit_bias)
        ids, mask = pad_rows([row.prompt for row in active], left=True)
        ids, mask = ids.to(self.device), mask.to(self.device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        with torch.inference_mode():
            while active:
                output = self._model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                self._extend(active, output.logits[:, -1, :].float(), sampling, biases)
                kept = [i for i, row in enumerate(active) if not row.finished]
                if not kept:
                    return
                if len(kept) < len(active):
                    chosen = torch.tensor(kept, device=mask.device)
                    cache.batch_select_indices(chosen)
                    mask, positions = mask[chosen], positions[chosen]
                    active = [active[i] for i in kept]
                ids = torch.tensor([[row.drawn[-1]] for row in active], device=mask.device)
                mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
                positions = positions[:, -1:] + 1

    def _extend(
        self,
        rows: list[_BatchRow],
        logits: "torch.Tensor",
        sampling: Sampling,
        biases: Mapping[int, float],
    ) -> None:
        """Draw one token for each row from its logits."""
        import torch

        raw = logits.log_softmax(dim=-1)
        logits = add_biases(logits, biases)
        if sampling.repetition_penalty is not None:
            seen = [[*row.prompt, *row.drawn] for row in rows]
            logits = penalise_repeats(logits, seen, sampling.repetition_penalty)
        if sampling.temperature == 0:
            chosen = logits.argmax(dim=-1)
        else:
            uniform = torch.tensor([row.uniform.random() for row in rows], dtype=torch.float64)
            chosen = pick(logits, uniform.to(logits.device), sampling)
        gained = raw.gather(1, chosen[:, None])[:, 0].tolist()
        for row, token, logprob in zip(rows, chosen.tolist(), gained, strict=True):
            if not math.isfinite(logprob):
                raise EngineError(
                    f"the model's probabilities are not finite (request {row.request.request_id})"
                )
            row.drawn.append(token)
            row.logprob += logprob
            row.stopped = token in self._chat.stops or (
                bool(sampling.stop) and self._chat.stops_at(row.drawn, sampling.stop)
            )


def measure(
    model: Any, prompt: Sequence[int], answer: Sequence[int], *, context: int
) -> AnswerLogprob | None:
    """Return the log-probability of the tokens `answer` after `prompt`, by one forward pass.

    None if prompt or answer is empty, or there are more than `context` tokens.
    """
    import torch

    if not prompt or not answer or len(prompt) + len(answer) > context:
        return None
    ids = torch.tensor([[*prompt, *answer]], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=ids, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
    logprobs = logits.log_softmax(dim=-1).gather(1, ids[0, len(prompt) :, None])
    return AnswerLogprob(logprob=float(logprobs.double().sum()), tokens=len(answer))


def add_biases(logits: "torch.Tensor", biases: Mapping[int, float]) -> "torch.Tensor":
    """Return the logits with `biases` added, by token id, in every row."""
    import torch

    if not biases:
        return logits
    tokens = torch.tensor(list(biases), device=logits.device)
    return logits.index_add(
        1, tokens, logits.new_tensor(list(biases.values())).expand(len(logits), -1)
    )


def penalise_repeats(
    logits: "torch.Tensor", seen: Sequence[Sequence[int]], penalty: float
) -> "torch.Tensor":
    """Return the logits, lowered for the tokens that each row has `seen`."""
    import torch

    logits = logits.clone()
    for row, tokens in zip(logits, seen, strict=True):
        places = torch.tensor(sorted({*tokens}), device=logits.device)
        found = row[places]
        row[places] = torch.where(found > 0, found / penalty, found * penalty)
    return logits


def pick(logits: "torch.Tensor", uniform: "torch.Tensor", sampling: Sampling) -> "torch.Tensor":
    """Return the token of each row at the point `uniform` of its filtered distribution.

    The nucleus is the smallest set of most probable tokens that contains at least `top_p` of the
    probability left by `min_p` and `top_k`; tokens as probable as the last of `top_k` stay, too.
    """
    import torch

    weights = (logits.double() / sampling.temperature).softmax(dim=-1)
    if sampling.min_p is not None:
        least = weights.amax(-1, keepdim=True) * sampling.min_p
        weights = weights.masked_fill(weights < least, 0.0)
    if sampling.top_k is not None and sampling.top_k < weights.shape[-1]:
        last = weights.topk(sampling.top_k, dim=-1).values[:, -1:]
        weights = weights.masked_fill(weights < last, 0.0)
    if sampling.top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True, stable=True)
        share = sampling.top_p * ordered.sum(-1, keepdim=True)
        outside = ordered.cumsum(-1) - ordered >= share
        weights = weights.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), 0.0)
    sums = weights.cumsum(-1)
    points = uniform[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, points, right=True)[:, 0]
    # A point that rounds up to the whole mass belongs to the last token with any mass.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(-1)
    return torch.minimum(found, last)
