"""A reward function of the user's own: prompts and texts in, one number for each out.

Runs inside a worker process. It is called with at most `reward.batch_size` texts at once, cut the
same way every time.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...configs.own_function import OwnFunction, own_function
from ...configs.schema import ConfigError, RewardConfig
from ...stores.keys import digest
from ...stores.records import Prompt
from .engine import EngineError, ScoreBatch, ScoreRequest, ScoreResult

PROMPTS_AND_TEXTS = 2
SHOWN = 60


def own_reward(place: str) -> OwnFunction:
    """Import the reward function at a place.

    Raises:
        EngineError: if it cannot be used.
    """
    try:
        return own_function(place, arguments=PROMPTS_AND_TEXTS)
    except ConfigError as error:
        raise EngineError(f"reward.model: {error}") from error


def function_digest(name: str, sha256: str) -> str:
    """Return the identity of a reward function, for keys: its name, and its file's hash."""
    return digest(["function", name, sha256])


class OwnScorer:
    """A function `score(prompts, texts)` in place of a reward model.

    `identity` is that of the function that the run began with: a file that has changed is refused.
    """

    name = "function"
    device = "none"

    def __init__(self, place: str, config: RewardConfig, identity: str) -> None:
        found = own_reward(place)
        # Listed inside the call: a generator fails, and says where, as a function does.
        function = found.function
        self._function = replace(found, function=lambda p, t: _plain(function(p, t)))  # pyright: ignore[reportUnknownLambdaType]
        if function_digest(self._function.name, self._function.sha256) != identity:
            raise EngineError(
                f"reward.model: {place}: the file has changed since the run began; put it back as "
                "it was: the run's folder `own` has a copy"
            )
        self._group = config.batch_size
        self.window = 4 * config.batch_size

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score batch after batch.

        Raises:
            EngineError: if the function fails, or returns anything but a number for each text.
        """
        for batch in batches:
            groups = range(0, len(batch.requests), self._group)
            scores = [
                score
                for start in groups
                for score in self._scores(batch.requests[start : start + self._group])
            ]
            yield ScoreResult(key=batch.key, scores=tuple(scores))

    def close(self) -> None:
        """Nothing is held."""

    def _scores(self, requests: Sequence[ScoreRequest]) -> list[float | None]:
        prompts = [_prompt(request) for request in requests]
        texts = [request.messages[-1].content for request in requests]
        try:
            values: list[object] = self._function(prompts, texts)
        except ConfigError as error:
            raise EngineError(f"reward.model: {error}") from error
        if len(values) != len(texts):
            raise self._refused(f"returned {len(values)} scores for {len(texts)} texts")
        return [self._number(value) for value in values]

    def _number(self, value: object) -> float | None:
        if value is None:
            return None
        # Booleans are numbers to Python, and rarely meant as such.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refused(f"returned the score {value!r:.{SHOWN}}")
        if not math.isfinite(value):
            raise self._refused(f"returned the score {value}")
        return float(value)

    def _refused(self, what: str) -> EngineError:
        return EngineError(
            f"reward.model: {self._function.place} {what}: it returns one finite number for each "
            "text, or None where it has none"
        )


def _plain(scores: Any) -> list[object]:
    """Return scores as a list; numpy and torch give plain numbers by `tolist`."""
    return list(scores.tolist() if hasattr(scores, "tolist") else scores)


def _prompt(request: ScoreRequest) -> Prompt:
    if request.prompt is None:
        raise EngineError("reward.model: your own function can score a run's prompts only")
    return request.prompt
