"""Natural language inference: a sequence classifier says whether a statement follows from a text.

Runs inside a worker process. A request is a text and a statement, as the two turns of a
conversation. A text that does not fit is read in windows that overlap by a quarter, and the
statement follows if it follows from one of them. The score is a margin: the logit of entailment
above the best of the others, so that above 0 the classifier says entailment.
"""

# pyright: basic

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configs.schema import RewardConfig
from .chat_template import load_tokenizer
from .engine import EngineError, ScoreBatch, ScoreRequest, ScoreResult
from .entailment_label import entailment_label
from .passes import by_rows
from .transformers_engine import load_model, move_away, pick_device

OVERLAP = 0.25
"""The share of a window that the next one has, too."""
LONGEST_STATEMENT = 0.5
"""The share of a window that a statement may take."""


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The tokens of a statement behind a part of its text, and the place of their request."""

    place: int
    inputs: dict[str, list[int]]


class EntailmentScorer:
    """A sequence classifier with a label `entailment`."""

    name = "transformers"

    def __init__(self, model: Path, config: RewardConfig) -> None:
        from transformers import AutoModelForSequenceClassification

        self._label = entailment_label(model)
        device = pick_device()
        self.device = str(device)
        self.sleeps = device.type != "cpu"
        own_type = "float32" if device.type == "cpu" else "bfloat16"
        dtype = own_type if config.dtype == "auto" else config.dtype
        self._model = load_model(AutoModelForSequenceClassification, str(model), dtype, device)
        self._tokenizer = load_tokenizer(model)
        if not self._tokenizer.is_fast:
            raise EngineError(f"{model}: its tokenizer has no tokenizer.json, which windows need")
        self._longest = min(
            config.max_length,
            self._tokenizer.model_max_length,
            getattr(self._model.config, "max_position_embeddings", config.max_length),
        )
        self._batch_size = config.batch_size
        self.window = 4 * config.batch_size

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; a statement that is too long for a window gets None."""
        for batch in batches:
            windows = [
                window
                for place, request in enumerate(batch.requests)
                for window in self._windows(place, request)
            ]
            margins: list[float | None] = [None] * len(batch.requests)
            for group in by_rows([len(w.inputs["input_ids"]) for w in windows], self._batch_size):
                read = [windows[number] for number in group]
                for window, margin in zip(read, self._margins(read), strict=True):
                    before = margins[window.place]
                    margins[window.place] = margin if before is None else max(before, margin)
            yield ScoreResult(key=batch.key, scores=tuple(margins))

    def sleep(self) -> None:
        """Move the weights into the machine's memory, and give the device's back."""
        move_away(self._model)

    def wake(self) -> None:
        """Move the weights back to the device; where they are, nothing moves."""
        self._model.to(self.device)

    def close(self) -> None:
        """Release the model."""
        del self._model

    def _windows(self, place: int, request: ScoreRequest) -> list[ReadWindow]:
        """Return a statement behind each window of its text."""
        premise, statement = (message.content for message in request.messages)
        own = len(self._tokenizer(statement, add_special_tokens=False)["input_ids"])
        if own > LONGEST_STATEMENT * self._longest:
            return []
        room = self._longest - own - self._tokenizer.num_special_tokens_to_add(pair=True)
        encoded = self._tokenizer(
            premise,
            statement,
            truncation="only_first",
            max_length=self._longest,
            stride=int(OVERLAP * room),
            return_overflowing_tokens=True,
        )
        names = [name for name in self._tokenizer.model_input_names if name in encoded]
        count = len(encoded["input_ids"])
        return [ReadWindow(place, {name: encoded[name][n] for name in names}) for n in range(count)]

    def _margins(self, windows: Sequence[ReadWindow]) -> list[float]:
        import torch

        inputs: Any = self._tokenizer.pad([w.inputs for w in windows], return_tensors="pt")
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits.float().cpu()
        if not bool(torch.isfinite(logits).all()):
            raise EngineError("the model of natural language inference gives no finite logits")
        others = logits.clone()
        others[:, self._label] = -torch.inf
        return (logits[:, self._label] - others.max(dim=1).values).tolist()
