"""Reward scoring: a sequence classifier of one label reads a conversation and gives r(x, y).

Runs inside a worker process. A batch is sorted by length and cut into the same groups every time,
so a batch's scores are a function of the batch.
"""

# pyright: basic

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...configs.schema import RewardConfig
from .chat import ChatTokenizer
from .chat_template import load_tokenizer
from .engine import EngineError, ScoreBatch, ScoreResult
from .thinking import AS_RENDERED
from .transformers_engine import load_model, move_away, pick_device


class RewardScorer:
    """A sequence classifier with one label, read at the conversation's last token."""

    name = "transformers"

    def __init__(self, model: Path, config: RewardConfig) -> None:
        from transformers import AutoModelForSequenceClassification

        device = pick_device()
        self.device = str(device)
        self.sleeps = device.type != "cpu"
        self._model = load_model(AutoModelForSequenceClassification, str(model), "auto", device)
        labels = self._model.config.num_labels
        if labels != 1:
            raise EngineError(
                f"{model}: a reward model has one label, this classifier has {labels}"
            )
        tokenizer = load_tokenizer(model)
        self._chat = ChatTokenizer(tokenizer, model, AS_RENDERED)
        self._pad = tokenizer.pad_token_id
        own = getattr(self._model.config, "max_position_embeddings", None)
        self._longest = config.max_length if own is None else min(config.max_length, own)
        self._sees_end = config.sees_end
        self._group = config.batch_size
        self.window = 4 * config.batch_size

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score batch after batch; a conversation that does not fit the context gets None."""
        for batch in batches:
            rows = [
                self._chat.judged(request.messages, sees_end=self._sees_end)
                for request in batch.requests
            ]
            scores: list[float | None] = [None] * len(rows)
            fitting = [i for i, row in enumerate(rows) if 0 < len(row) <= self._longest]
            fitting.sort(key=lambda i: (len(rows[i]), i))
            for start in range(0, len(fitting), self._group):
                group = fitting[start : start + self._group]
                values = self._forward([rows[i] for i in group])
                for i, value in zip(group, values, strict=True):
                    scores[i] = value
            yield ScoreResult(key=batch.key, scores=tuple(scores))

    def sleep(self) -> None:
        """Move the weights into the machine's memory, and give the device's back."""
        move_away(self._model)

    def wake(self) -> None:
        """Move the weights back to the device; where they are, nothing moves."""
        self._model.to(self.device)

    def close(self) -> None:
        """Release the model."""
        del self._model

    def _forward(self, rows: Sequence[Sequence[int]]) -> list[float]:
        import torch

        pad = padding({row[-1] for row in rows}, self._pad)
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), pad, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        # transformers reads the score at the last token that is not the configured padding.
        self._model.config.pad_token_id = pad
        with torch.inference_mode():
            output = self._model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device))
        values = output.logits[:, 0].float().cpu()
        if not bool(torch.isfinite(values).all()):
            raise EngineError("the reward model gives scores that are not finite")
        return values.tolist()


def padding(endings: set[int], own: int | None) -> int:
    """Return a padding id with which no row ends; the tokenizer's own if possible."""
    if own is not None and own not in endings:
        return own
    return next(i for i in range(len(endings) + 1) if i not in endings)
