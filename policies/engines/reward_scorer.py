"""Reward scoring: a sequence classifier of one label reads a conversation and gives r(x, y).

Runs inside a worker process. On a CPU a batch is sorted by length and cut into the same groups
every time, so that its scores are a function of the batch. On a GPU passes are bounded by tokens
and take rows of several batches: the last bits of a score then depend on what else was there.
"""

# pyright: basic

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...configs.schema import RewardConfig
from .chat import ChatTokenizer
from .chat_template import load_tokenizer
from .engine import EngineError, ScoreBatch, ScoreRequest, ScoreResult
from .passes import by_rows, by_tokens
from .scoring import ScoringPasses, Tokens
from .thinking import AS_RENDERED
from .transformers_engine import load_model, move_away, pick_device
from .turn_end import ASKED, SAID

GATHERED = 8
"""Passes that rows are sorted into together, where passes are bounded by tokens."""

AHEAD = 32
"""Requests worth sending ahead then, as a multiple of `batch_size`: short rows share a pass."""


class RewardScorer:
    """A sequence classifier with one label, read at the conversation's last token.

    `packs`: passes are bounded by tokens, default on a GPU; as many as `batch_size` conversations
    of `max_length` have.
    """

    name = "transformers"

    def __init__(self, model: Path, config: RewardConfig, *, packs: bool | None = None) -> None:
        from transformers import AutoModelForSequenceClassification

        device = pick_device()
        self.device = str(device)
        self.sleeps = device.type != "cpu"
        own_type = "float32" if device.type == "cpu" else "bfloat16"
        dtype = own_type if config.dtype == "auto" else config.dtype
        self._model = load_model(AutoModelForSequenceClassification, str(model), dtype, device)
        keep_head_exact(self._model)
        require_one_label(model, self._model.config)
        reading = ConversationReader(model, config, self._model.config)
        self._pad = reading.tokenizer.pad_token_id
        packed = device.type != "cpu" if packs is None else packs
        most = config.batch_size * reading.longest
        self._scoring = ScoringPasses(
            tokens=reading.tokens,
            longest=reading.longest,
            ahead=GATHERED * most if packed else 0,
            passes=partial(by_tokens, most=most)
            if packed
            else partial(by_rows, most=config.batch_size),
            forward=self._forward,
        )
        self.window = (AHEAD if packed else 4) * config.batch_size

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; a conversation that does not fit the context gets None."""
        return self._scoring.score(batches)

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


class ConversationReader:
    """How a reward model reads conversations: its tokenizer, its template, the longest it takes."""

    def __init__(self, model: Path, config: RewardConfig, own: Any) -> None:
        self.tokenizer = load_tokenizer(model)
        self._chat = ChatTokenizer(self.tokenizer, model, AS_RENDERED)
        context = getattr(own, "max_position_embeddings", None)
        self.longest = config.max_length if context is None else min(config.max_length, context)
        self._sees_end = config.sees_end
        if config.sees_end:
            require_visible_end(model, self._chat)

    def tokens(self, request: ScoreRequest) -> Tokens:
        """Return the token ids of a conversation."""
        return self._chat.judged(request.messages, sees_end=self._sees_end, ended=request.ended)


def require_visible_end(model: Path, chat: ChatTokenizer) -> None:
    """Refuse a template that renders a cut answer as it renders a finished one.

    Raises:
        EngineError: naming the setting.
    """
    both = (ASKED, SAID)
    if chat.judged(both, sees_end=True) == chat.judged(both, sees_end=True, ended=False):
        raise EngineError(
            f"{model}: its chat template writes none of the model's end tokens after an answer, so "
            "a reward model cannot see whether one has ended; set reward.sees_end=false"
        )


def require_one_label(model: Path, config: Any) -> None:
    """Refuse a classifier of several labels.

    Raises:
        EngineError: saying how many there are.
    """
    if config.num_labels != 1:
        raise EngineError(
            f"{model}: a reward model has one label, this classifier has {config.num_labels}"
        )


def keep_head_exact(model: Any) -> None:
    """Let the score be computed in float32, whatever type the weights below have.

    In bfloat16 two scores near 5 differ by 0.03 or not at all: the best of several would be a tie.
    """
    import torch

    head = getattr(model, "score", None)
    if isinstance(head, torch.nn.Linear) and head.weight.dtype != torch.float32:
        head.float()
        head.register_forward_pre_hook(lambda _head, given: (given[0].float(),))


def padding(endings: set[int], own: int | None) -> int:
    """Return a padding id with which no row ends; the tokenizer's own if possible."""
    if own is not None and own not in endings:
        return own
    return next(i for i in range(len(endings) + 1) if i not in endings)
