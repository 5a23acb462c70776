"""What requests are expected to cost, learned from what their like have cost.

The first ones are expected to draw all that they may; of a prompt's tokens its length tells enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...policies.engines.engine import Completion, Request
from ...policies.engines.token_count import BYTES_A_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Tokens and calls that are expected, in the mean: no whole numbers."""

    prompt_tokens: float
    tokens: float
    calls: float


@dataclass(kw_only=True)
class CostExperience:
    """What requests of one kind have cost in this process.

    `asked` are those asked for the first time, `calls` those and what was asked again; `size` is
    the bytes of their prompts.
    """

    asked: int = 0
    calls: int = 0
    size: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    def learn(
        self, requests: Sequence[Request], answers: Sequence[Completion], *, again: bool
    ) -> None:
        """Take what requests have cost."""
        self.asked += 0 if again else len(requests)
        self.calls += len(requests)
        self.size += sum(map(size_of_prompt, requests))
        self.prompt_tokens += sum(answer.prompt_tokens for answer in answers)
        self.tokens += sum(answer.completion_tokens for answer in answers)

    def expected(self, requests: Sequence[Request], longest: int) -> Forecast:
        """Return what requests will cost, with those that are asked again in their place."""
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
