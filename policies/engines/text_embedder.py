# pyright: basic
"""Vectors of texts, inside a worker process.

A text's vector is the policy's own (the mean of its last hidden states over the text's tokens), or
that of an embedding model, by sentence-transformers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...configs.schema import EmbedderConfig
from .chat_template import load_tokenizer
from .engine import EngineError, Result, ScoreBatch
from .transformers_engine import TransformersModel, padded, pick_device


class TextEmbedder(ABC):
    """Gives each text of a batch its vector."""

    name: str
    device: str
    window: int

    @abstractmethod
    def vectors(self, texts: list[str]) -> Any:
        """Return a tensor with one row a text."""

    def embed(self, batches: Iterable[ScoreBatch]) -> Iterator[Result[bytes]]:
        """Yield the vectors of one batch after another."""
        import torch

        for batch in batches:
            vectors = self.vectors([request.messages[0].content for request in batch.requests])
            if not bool(torch.isfinite(vectors).all()):
                raise EngineError("the embedder gives vectors that are not finite")
            rows = (row.numpy().tobytes() for row in vectors.float().cpu())
            yield Result(key=batch.key, answers=tuple(rows))


def load_embedder(model: Path, config: EmbedderConfig) -> TextEmbedder:
    """Load an embedder into this process."""
    if config.kind == "sentence-transformers":
        return SentenceEmbedder(model, config)
    return HiddenStateEmbedder(model, config)


class HiddenStateEmbedder(TransformersModel, TextEmbedder):
    """The mean of a language model's last hidden states."""

    def __init__(self, model: Path, config: EmbedderConfig) -> None:
        from transformers import AutoModel

        super().__init__(AutoModel, model, "auto")
        self.window = 4 * config.batch_size
        self._tokenizer = load_tokenizer(model)
        self._longest = self._context(config.max_tokens)

    def vectors(self, texts: list[str]) -> Any:
        """Return a tensor with one row a text; an empty text counts as one token."""
        import torch

        encoded = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        ids, mask = padded([row[: self._longest] or [0] for row in encoded])
        ids, mask = ids.to(self.device), mask.to(self.device)
        with torch.inference_mode():
            states = self._model(input_ids=ids, attention_mask=mask, use_cache=False)
        weights = mask.unsqueeze(-1).float()
        return (states.last_hidden_state.float() * weights).sum(1) / weights.sum(1)


class SentenceEmbedder(TextEmbedder):
    """A model of sentence-transformers, loaded from a local folder only."""

    name = "sentence-transformers"

    def __init__(self, model: Path, config: EmbedderConfig) -> None:
        from sentence_transformers import (  # pyright: ignore[reportMissingImports]
            SentenceTransformer,
        )

        self.device = str(pick_device())
        self.window = 4 * config.batch_size
        self._size = config.batch_size
        self._model = SentenceTransformer(str(model), device=self.device, local_files_only=True)
        own = self._model.max_seq_length or config.max_tokens
        self._model.max_seq_length = min(own, config.max_tokens)

    def vectors(self, texts: list[str]) -> Any:
        """Return a tensor with one row a text."""
        return self._model.encode(
            texts, batch_size=self._size, convert_to_tensor=True, show_progress_bar=False
        )
