"""The expected cost of requests, learned from the cost of earlier requests of the same kind.

The first requests are expected to use all tokens they may; prompt tokens are estimated by length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...policies.engines.engine import Completion, Request
from ...policies.engines.token_count import BYTES_A_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected tokens and calls: means, so not whole numbers."""

    prompt_tokens: float
    tokens: float
    calls: float


@dataclass(kw_only=True)
class CostEstimator:
    """The cost of requests of one kind in this process.

    `asked` counts requests, `calls` also their repetitions; `size` is the bytes of their prompts.
    """

    asked: int = 0
    calls: int = 0
    size: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    def learn(
        self, requests: Sequence[Request], answers: Sequence[Completion], *, again: bool
    ) -> None:
        """Add the cost of requests."""
        self.asked += 0 if again else len(requests)
        self.calls += len(requests)
        self.size += sum(map(size_of_prompt, requests))
        self.prompt_tokens += sum(answer.prompt_tokens for answer in answers)
        self.tokens += sum(answer.completion_tokens for answer in answers)

    def expected(self, requests: Sequence[Request], longest: int) -> Forecast:
        """Return the expected cost of requests, including the expected repetitions."""
        times = self.calls / self.asked if self.asked else 1.0
        density = self.prompt_tokens / self.size if self.size else 1 / BYTES_A_TOKEN
        drawn = self.tokens / self.calls if self.calls else float(longest)
        return Forecast(
            prompt_tokens=times * density * sum(map(size_of_prompt, requests)),
            tokens=times * drawn * len(requests),
            calls=times * len(requests),
        )


def size_of_prompt(request: Request) -> int:
    """Return the bytes of a request's messages."""
    return sum(len(message.content.encode()) for message in request.messages)
