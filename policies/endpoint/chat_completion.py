"""One chat completion: the request, and what counts as an answer.

The endpoint keeps the chat template and the tokenizer. If it says that it is vLLM, the sampling
fields that the model's `generation_config.json` could set are sent, too: that file must not change
them silently.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import openai
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from ..engines.engine import Completion, Request, Sampling
from .endpoint import ServedModel

VLLM_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""What vLLM's server would otherwise take from the model's own generation_config.json."""

OVERFLOW_SIGNS = (
    "context length",
    "context_length",
    "maximum context",
    "max_model_len",
    "too long",
)

MOST_TOKENS = 2**31
"""Larger counts are nonsense, and no store could hold them."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Request fields that not every endpoint accepts."""

    logprobs: bool = True
    limit: str = "max_completion_tokens"

    def without(self, told: str) -> "Dialect | None":
        """Return a dialect without the field that a refusal names; None if it names none."""
        if self.logprobs and "logprob" in told:
            return replace(self, logprobs=False)
        if self.limit in told and self.limit != "max_tokens":
            return replace(self, limit="max_tokens")
        return None


def overflows(told: str) -> bool:
    """Whether a refusal says that the prompt and its completion do not fit the context."""
    return any(sign in told for sign in OVERFLOW_SIGNS)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to endpoints; if not `bounded`, only the context limits the answer."""

    request: Request
    sampling: Sampling
    bounded: bool = True

    async def ask(
        self, client: openai.AsyncOpenAI, served: ServedModel, dialect: Dialect
    ) -> Completion:
        """Post it once.

        Raises:
            OpenAIError, AnswerTooLargeError, ValueError, TypeError, AttributeError,
            RecursionError: when no chat completion comes back.
        """
        extra = VLLM_NEUTRAL if served.by_vllm else None
        create: Any = client.chat.completions.create
        reply = await create(model=served.name, extra_body=extra, **self.parameters(dialect))
        return completion(self.request, reply)

    def parameters(self, dialect: Dialect) -> dict[str, Any]:
        """Return the request body without what only vLLM understands."""
        messages = [{"role": m.role, "content": m.content} for m in self.request.messages]
        body: dict[str, Any] = {
            "messages": messages,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.request.seed,
        }
        if self.bounded:
            body[dialect.limit] = self.sampling.max_tokens
        if dialect.logprobs:
            body["logprobs"] = True
        if self.sampling.logit_bias:
            body["logit_bias"] = {str(token): added for token, added in self.sampling.logit_bias}
        return body


class NoCompletionError(ValueError):
    """The reply is not a chat completion."""


def completion(request: Request, reply: object) -> Completion:
    """Read an endpoint's reply; an answer cut short by a content filter counts as truncated.

    Raises:
        NoCompletionError: when it is not a chat completion. The client library builds its objects
            from anything, so every field is checked.
    """
    if not isinstance(reply, ChatCompletion):
        raise NoCompletionError
    choice: object = reply.choices[0] if reply.choices else None
    if not isinstance(choice, Choice):
        raise NoCompletionError
    content: object = getattr(choice.message, "content", 0)
    if not isinstance(content, str | None):
        raise NoCompletionError
    logprobs = _logprobs(choice)
    usage = reply.usage
    return Completion(
        request_id=request.request_id,
        text=_whole_characters(content or ""),
        prompt_tokens=_count(usage.prompt_tokens) if usage else 0,
        completion_tokens=_count(usage.completion_tokens) if usage else len(logprobs),
        finish_reason="stop" if choice.finish_reason == "stop" else "length",
        logprob=sum(logprobs) if logprobs and all(map(math.isfinite, logprobs)) else None,
    )


def _logprobs(choice: Choice) -> list[float]:
    tokens = choice.logprobs.content if choice.logprobs else None
    return [float(token.logprob) for token in tokens or ()]


def _count(tokens: object) -> int:
    if isinstance(tokens, int) and 0 <= tokens < MOST_TOKENS:
        return int(tokens)
    raise NoCompletionError


def _whole_characters(text: str) -> str:
    """Return `text` without lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
