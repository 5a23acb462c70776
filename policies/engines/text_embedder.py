# pyright: basic
"""Vectors of texts, inside a worker process.

Either the policy's own: the mean, over a text's tokens, of the last hidden state. Or those of an
embedding model, by sentence-transformers.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...configs.schema import EmbedderConfig
from .chat_template import load_tokenizer
from .engine import EmbedResult, EngineError, ScoreBatch
from .transformers_engine import load_model, pick_device


class TextEmbedder:
    """Gives each text of a batch its vector."""

    name: str
    device: str
    window: int

    def embed(self, batches: Iterable[ScoreBatch]) -> Iterator[EmbedResult]:
        """Yield the vectors of one batch after another."""
        import torch

        for batch in batches:
            vectors = self._vectors([request.messages[0].content for request in batch.requests])
            if not bool(torch.isfinite(vectors).all()):
                raise EngineError("the embedder gives vectors that are not finite")
            rows = (row.numpy().tobytes() for row in vectors.float().cpu())
            yield EmbedResult(key=batch.key, vectors=tuple(rows))

    def _vectors(self, texts: list[str]) -> Any:
        """Return one row a text."""
        raise NotImplementedError


def load_embedder(model: Path, config: EmbedderConfig) -> TextEmbedder:
    """Load an embedder into this process."""
    if config.kind == "sentence-transformers":
        return SentenceEmbedder(model, config)
    return HiddenStateEmbedder(model, config)


class HiddenStateEmbedder(TextEmbedder):
    """The mean of a language model's last hidden states."""

    name = "transformers"

    def __init__(self, model: Path, config: EmbedderConfig) -> None:
        from transformers import AutoModel

        device = pick_device()
        self.device = str(device)
        self.window = 4 * config.batch_size
        self._model = load_model(AutoModel, str(model), "auto", device)
        self._tokenizer = load_tokenizer(model)
        own = getattr(self._model.config, "max_position_embeddings", None)
        self._longest = config.max_tokens if own is None else min(config.max_tokens, own)

    def _vectors(self, texts: list[str]) -> Any:
        import torch

        rows = [self._ids(text) for text in texts]
        width = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        with torch.inference_mode():
            states = self._model(input_ids=ids, attention_mask=mask, use_cache=False)
        weights = mask.unsqueeze(-1).float()
        return (states.last_hidden_state.float() * weights).sum(1) / weights.sum(1)

    def _ids(self, text: str) -> list[int]:
        """Return a text's first tokens; an empty text gets one token."""
        return self._tokenizer(text, add_special_tokens=False)["input_ids"][: self._longest] or [0]


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

    def _vectors(self, texts: list[str]) -> Any:
        return self._model.encode(
            texts, batch_size=self._size, convert_to_tensor=True, show_progress_bar=False
        )
