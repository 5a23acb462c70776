# pyright: basic
"""Scorers, inside a worker process: reward models, and users' reward functions.

A scorer reads each conversation as rows of tokens, and puts rows of similar lengths into one
forward pass, where the short ones are padded. On a CPU a pass has a fixed number of rows of one
batch, so a batch's scores are a function of the batch, to the last bit. On a GPU a pass is bounded
by its padded tokens and takes rows of all batches that have arrived, so that short rows keep the
GPU as busy as long ones; the last bits of a score then depend on the other rows in its pass.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...configs.own_function import OwnFunction, own_function
from ...configs.schema import ConfigError, RewardConfig
from ...stores.keys import digest
from .chat import ChatTokenizer
from .chat_template import PROBE_ANSWER, PROBE_QUESTION, load_tokenizer
from .engine import EngineError, ScoreBatch, ScoreRequest, ScoreResult, take
from .thinking import AS_RENDERED
from .transformers_engine import TransformersModel, pad_rows

Row = TypeVar("Row")
Tokens = Sequence[int]

GATHERED = 8
"""Passes whose rows are sorted together, if passes are bounded by tokens."""

AHEAD = 32
"""Requests worth sending ahead then, as a multiple of `batch_size`: short rows share a pass."""


@dataclass(slots=True)
class _OpenBatch(Generic[Row]):
    """A batch, its rows with the places of their requests, and the scores known so far."""

    batch: ScoreBatch
    rows: list[tuple[int, Row]]
    scores: list[float | None]
    missing: int

    @property
    def result(self) -> ScoreResult:
        return ScoreResult(key=self.batch.key, answers=tuple(self.scores))


class BatchedScorer(ABC, Generic[Row]):
    """Scores batches of conversations, `batch_size` rows at a time.

    `window` is how many requests to send ahead. `ahead` is how many tokens of arrived batches
    share passes; with 0 batches do not share passes.
    """

    window: int
    batch_size: int
    ahead = 0

    @abstractmethod
    def rows(self, request: ScoreRequest) -> Sequence[Row]:
        """Return a conversation as rows, none if it does not fit; its best row is its score."""

    @abstractmethod
    def forward(self, rows: Sequence[Row]) -> Sequence[float | None]:
        """Score the rows of one pass."""

    def length(self, row: Row) -> int:
        """Return the tokens of a row."""
        return len(row)  # pyright: ignore[reportArgumentType]

    def passes(self, lengths: Sequence[int]) -> Iterable[Sequence[int]]:
        """Return the places of the rows of each pass."""
        return by_rows(lengths, self.batch_size)

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Yield each batch when it is complete; a conversation that does not fit gets None."""
        source = iter(batches)
        while gathered := self._gather(source):
            yield from self._score(gathered)

    def _gather(self, source: Iterator[ScoreBatch]) -> list[_OpenBatch[Row]]:
        """Wait for a batch, and take the others that have arrived."""
        found: list[_OpenBatch[Row]] = []
        held = 0
        with suppress(StopIteration):
            while not found or held < self.ahead:
                batch = take(source, wait=not found)
                if batch is None:
                    break
                rows = [(n, row) for n, one in enumerate(batch.requests) for row in self.rows(one)]
                found.append(_OpenBatch(batch, rows, [None] * len(batch.requests), len(rows)))
                held += sum(self.length(row) for _, row in rows)
        return found

    def _score(self, gathered: Sequence[_OpenBatch[Row]]) -> Iterator[ScoreResult]:
        yield from (opened.result for opened in gathered if not opened.missing)
        rows = [(opened, place, row) for opened in gathered for place, row in opened.rows]
        for group in self.passes([self.length(row) for _, _, row in rows]):
            values = self.forward([rows[number][2] for number in group])
            for number, value in zip(group, values, strict=True):
                opened, place, _ = rows[number]
                known = [v for v in (opened.scores[place], value) if v is not None]
                opened.scores[place] = max(known, default=None)
                opened.missing -= 1
                if not opened.missing:
                    yield opened.result


def by_rows(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the places of the rows of each pass: the shortest first, `most` at a time."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    yield from (order[start : start + most] for start in range(0, len(order), most))


def by_tokens(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the places of the rows of each pass: the longest first, `most` padded tokens at a time.

    A row of more tokens has a pass to itself.
    """
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    start = 0
    while start < len(order):
        # The first row is the longest: the others are padded to it.
        rows = max(1, most // lengths[order[start]])
        yield order[start : start + rows]
        start += rows


def require_visible_end(model: Path, chat: ChatTokenizer) -> None:
    """Refuse a template that renders truncated and finished answers alike.

    Raises:
        EngineError: naming the setting.
    """
    both = (PROBE_QUESTION, PROBE_ANSWER)
    if chat.encode_judged(both, sees_end=True) == chat.encode_judged(
        both, sees_end=True, ended=False
    ):
        raise EngineError(
            f"{model}: its chat template writes none of the model's end tokens after an answer, so "
            "a reward model cannot see whether one has ended; set reward.sees_end=false"
        )


class RewardScorer(TransformersModel, BatchedScorer[Tokens]):
    """A sequence classifier with one label, read at the conversation's last token.

    `packs`: passes are bounded by tokens, the default on a GPU: as many as `batch_size`
    conversations of `max_length` have.
    """

    def __init__(self, model: Path, config: RewardConfig, *, packs: bool | None = None) -> None:
        from transformers import AutoModelForSequenceClassification

        super().__init__(AutoModelForSequenceClassification, model, config.dtype, scores=True)
        if self._model.config.num_labels != 1:
            raise EngineError(
                f"{model}: a reward model has one label, this classifier has "
                f"{self._model.config.num_labels}"
            )
        keep_head_exact(self._model)
        self._tokenizer = load_tokenizer(model)
        self._chat = ChatTokenizer(self._tokenizer, model, AS_RENDERED)
        self._sees_end = config.sees_end
        if config.sees_end:
            require_visible_end(model, self._chat)
        self._longest = self._context(config.max_length)
        self.batch_size = config.batch_size
        self._packs = self.sleeps if packs is None else packs
        self._most = config.batch_size * self._longest
        self.ahead = GATHERED * self._most if self._packs else 0
        self.window = (AHEAD if self._packs else 4) * config.batch_size

    def rows(self, request: ScoreRequest) -> list[Tokens]:
        """Return the token ids of a conversation, unless it is too long."""
        row = self._chat.encode_judged(
            request.messages, sees_end=self._sees_end, ended=request.ended
        )
        return [row] if 0 < len(row) <= self._longest else []

    def passes(self, lengths: Sequence[int]) -> Iterable[Sequence[int]]:
        """Return the places of the rows of each pass."""
        return by_tokens(lengths, self._most) if self._packs else super().passes(lengths)

    def forward(self, rows: Sequence[Tokens]) -> list[float]:
        """Score the rows of one pass.

        Raises:
            EngineError: for a score that is not finite.
        """
        import torch

        pad = padding({row[-1] for row in rows}, self._tokenizer.pad_token_id)
        ids, mask = pad_rows(rows, pad)
        # transformers reads the score at the last token that is not the configured padding.
        self._model.config.pad_token_id = pad
        with torch.inference_mode():
            output = self._model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device))
        scores: list[float] = output.logits[:, 0].float().cpu().tolist()
        if not all(map(math.isfinite, scores)):
            raise EngineError("the reward model gives scores that are not finite")
        return scores


def keep_head_exact(model: Any) -> None:
    """Make a classifier compute the score in float32, for weights of any type below.

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


def own_reward(place: str) -> OwnFunction:
    """Import the reward function at a place.

    Raises:
        EngineError: if it cannot be used.
    """
    try:
        return own_function(place, arguments=2)  # prompts and texts
    except ConfigError as error:
        raise EngineError(f"reward.model: {error}") from error


def function_digest(name: str, sha256: str) -> str:
    """Return the identity of a reward function, for keys: its name, and its file's hash."""
    return digest(["function", name, sha256])


class OwnScorer(BatchedScorer[ScoreRequest]):
    """A user's function `score(prompts, texts)` instead of a reward model.

    It is called with at most `reward.batch_size` texts of a batch at once, in order. `identity`
    is the function's identity when the run began: a file that has changed is refused.
    """

    def __init__(self, place: str, config: RewardConfig, identity: str) -> None:
        found = own_reward(place)
        # Listed inside the call, so that an error of a generator names the line, too.
        function = found.function
        self._function = replace(found, function=lambda p, t: _as_list(function(p, t)))
        if function_digest(self._function.name, self._function.sha256) != identity:
            raise EngineError(
                f"reward.model: {place}: the file has changed since the run began; put it back as "
                "it was: the run's folder `own` has a copy"
            )
        self.batch_size = config.batch_size
        self.window = 4 * config.batch_size

    def close(self) -> None:
        """Do nothing: a function holds no resources."""

    def rows(self, request: ScoreRequest) -> list[ScoreRequest]:
        """Return the request itself."""
        return [request]

    def length(self, row: ScoreRequest) -> int:
        """Return the same length for all, so that they keep their order."""
        del row
        return 1

    def forward(self, rows: Sequence[ScoreRequest]) -> list[float | None]:
        """Score texts by one call of the function.

        Raises:
            EngineError: if it fails, or returns anything but one number or None for each text.
        """
        prompts = [request.prompt for request in rows]
        texts = [request.messages[-1].content for request in rows]
        if None in prompts:
            raise EngineError("reward.model: your own function can score a run's prompts only")
        try:
            values: list[object] = self._function(prompts, texts)
        except ConfigError as error:
            raise EngineError(f"reward.model: {error}") from error
        if len(values) != len(texts):
            raise self._refuse(f"returned {len(values)} scores for {len(texts)} texts")
        return [self._number(value) for value in values]

    def _number(self, value: object) -> float | None:
        if value is None:
            return None
        # Booleans are numbers to Python, and rarely meant as such.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(f"returned the score {value!r:.60}")
        if not math.isfinite(value):
            raise self._refuse(f"returned the score {value}")
        return float(value)

    def _refuse(self, what: str) -> EngineError:
        return EngineError(
            f"reward.model: {self._function.place} {what}: it returns one finite number for each "
            "text, or None where it has none"
        )


def _as_list(scores: Any) -> list[object]:
    """Return scores as a list; numpy and torch give plain numbers by `tolist`."""
    return list(scores.tolist() if hasattr(scores, "tolist") else scores)
