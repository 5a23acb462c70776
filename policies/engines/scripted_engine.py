"""An engine without a model: a function computes the answer from the request.

Dry runs and tests use it: everything around it is real, and the same requests give the same texts.
A token is a word between white space.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from ...configs.schema import EngineConfig
from ...stores.records import Message
from .engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
    overlong,
)
from .thinking import KNOWN, Thinking, parse_answer

THINKING = Thinking(tags=KNOWN[0], begun=False)
"""The tags of scripted thoughts: the ones that most families use."""

Script = Callable[[Request, Sampling], str]

OPENERS = ("Surely", "Perhaps", "Indeed", "Briefly", "Clearly", "Well", "Yes", "No")


def echo(request: Request, sampling: Sampling) -> str:
    """Repeat the last message after a word and a number from the seed (0 when greedy)."""
    seed = request.seed if sampling.temperature > 0 else 0
    last = request.messages[-1].content if request.messages else ""
    return f"{OPENERS[seed % len(OPENERS)]} {seed % 1000}: {last}"


def load_script(path: str) -> Script:
    """Return the function at a dotted path such as `pkg.mod:function`.

    Raises:
        EngineError: when the function does not exist.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise EngineError(f"engine.script must look like 'package.module:function', not {path!r}")
    try:
        script = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise EngineError(f"engine.script {path!r} cannot be loaded: {error}") from error
    if not callable(script):
        raise EngineError(f"engine.script {path!r} is not a function")
    return cast("Script", script)


class ScriptedEngine:
    """Answers by `config.script`, a function (Request, Sampling) -> str, or by `echo`."""

    window = 256

    def __init__(self, config: EngineConfig) -> None:
        self._script = echo if config.script is None else load_script(config.script)
        self._context = config.context

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Answer every request of `batches`, batch after batch."""
        for batch in batches:
            completions = tuple(self._complete(r, batch.sampling) for r in batch.requests)
            yield BatchResult(key=batch.key, answers=completions)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return None for each: a script does not have probabilities."""
        return [None] * len(conversations)

    def configure(self, config: EngineConfig) -> None:
        """Do nothing: a script is without live settings."""

    def close(self) -> None:
        """Do nothing: a script holds no resources."""

    def _complete(self, request: Request, sampling: Sampling) -> Completion:
        prompt_tokens = sum(len(message.content.split()) for message in request.messages)
        if self._context is not None and prompt_tokens >= self._context:
            return overlong(request, prompt_tokens)
        text = self._script(request, sampling)
        words = text.split()
        room = sampling.max_tokens if self._context is None else self._context - prompt_tokens
        limit = min(sampling.max_tokens, room)
        cut = len(words) > limit
        answer = parse_answer(" ".join(words[:limit]) if cut else text, THINKING, ended=not cut)
        return Completion(
            request_id=request.request_id,
            text=answer.text,
            reasoning=answer.reasoning,
            prompt_tokens=prompt_tokens,
            completion_tokens=min(len(words), limit),
            finish_reason=answer.finish_reason,
            logprob=None,
        )
