# pyright: basic
"""Natural language inference: a sequence classifier decides if a statement follows from a text.

A request is a text and a statement, as the two turns of a conversation. A text that does not fit is
read in windows that overlap by a quarter, and the statement follows if it follows from one of them.
The score is a margin: the logit of entailment minus the best of the others, so a score above 0
means entailment.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...configs.schema import RewardConfig
from .chat_template import load_tokenizer
from .engine import EngineError, ScoreRequest
from .scorers import BatchedScorer
from .transformers_engine import TransformersModel

ENTAILMENT = "entailment"
OVERLAP = 0.25
"""The share of a window that overlaps with the next one."""
LONGEST_STATEMENT = 0.5
"""The share of a window that a statement may take."""

Window = dict[str, list[int]]
"""The classifier's inputs for a statement after a part of its text."""


def entailment_label(folder: Path) -> int:
    """Return the number of a classifier's label `entailment`, found in its configuration.

    Raises:
        EngineError: if the folder lacks a readable configuration with this label.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        labels = {int(n): str(name) for n, name in dict(config.get("id2label") or {}).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise EngineError(f"{folder / 'config.json'}: no model's configuration: {error}") from error
    found = [number for number, name in labels.items() if name.casefold() == ENTAILMENT]
    if len(found) != 1 or len(labels) < 2:  # noqa: PLR2004 -- one label compares nothing
        names = ", ".join(labels.values()) or "none"
        raise EngineError(
            f"{folder}: a model of natural language inference has a label '{ENTAILMENT}' in the "
            f"id2label of its config.json; the labels there are {names}"
        )
    return found[0]


class EntailmentScorer(TransformersModel, BatchedScorer[Window]):
    """A sequence classifier with a label `entailment`."""

    def __init__(self, model: Path, config: RewardConfig) -> None:
        from transformers import AutoModelForSequenceClassification

        self._label = entailment_label(model)
        super().__init__(AutoModelForSequenceClassification, model, config.dtype, scores=True)
        self._tokenizer = load_tokenizer(model)
        if not self._tokenizer.is_fast:
            raise EngineError(f"{model}: its tokenizer lacks tokenizer.json, which windows need")
        self._longest = self._context(config.max_length, self._tokenizer.model_max_length)
        self.batch_size = config.batch_size
        self.window = 4 * config.batch_size

    def rows(self, request: ScoreRequest) -> list[Window]:
        """Return a statement after each window of its text; empty if the statement is too long."""
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
        return [{name: encoded[name][n] for name in names} for n in range(count)]

    def length(self, row: Window) -> int:
        """Return the tokens of a window."""
        return len(row["input_ids"])

    def forward(self, rows: Sequence[Window]) -> list[float]:
        """Return the margin of each window.

        Raises:
            EngineError: for a logit that is not finite.
        """
        import torch

        inputs: Any = self._tokenizer.pad(list(rows), return_tensors="pt")
        with torch.inference_mode():
            logits = self._model(**inputs.to(self.device)).logits.float().cpu()
        if not bool(torch.isfinite(logits).all()):
            raise EngineError("the logits of the natural language inference model are not finite")
        others = logits.clone()
        others[:, self._label] = -torch.inf
        return (logits[:, self._label] - others.max(dim=1).values).tolist()
