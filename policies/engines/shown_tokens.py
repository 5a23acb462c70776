# pyright: basic
"""Conversations as a model reads them: its own template, its special tokens, its count."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ...stores.records import Message
from .chat import ChatTokenizer
from .thinking import ChatForm


@dataclass(frozen=True, slots=True)
class ShownTokens:
    """Text with its special tokens; `tokens` counts all of them, `cut` is beyond a limit."""

    text: str
    tokens: int
    cut: str = ""


class TokenView:
    """The tokenizer of a model's folder, for looking at what the model is given."""

    def __init__(self, folder: Path, template: str | None, form: ChatForm) -> None:
        """Load the tokenizer of a folder, and no weights; `template` takes the place of its own.

        Raises:
            EngineError: if it has no chat template.
        """
        self._chat = ChatTokenizer.of(folder, template, form)
        # What is too long is shown as such, and not run.
        self._chat.tokenizer.model_max_length = sys.maxsize

    def asked(self, messages: tuple[Message, ...]) -> ShownTokens:
        """Return what a model is given to answer a conversation."""
        return self._shown(list(self._chat.prompt(messages)), None)

    def learned(
        self, messages: tuple[Message, ...], longest: int
    ) -> tuple[ShownTokens, ShownTokens]:
        """Return prompt and answer as a trainer divides them: only the answer's tokens are learned.

        TRL learns all that a template writes behind the prompt, a line feed after the end token,
        too. What is beyond the `longest` that a trainer takes, in tokens, is cut.
        """
        prompt, _ = self._chat.parted(messages)
        answer = self._chat.whole(messages)[len(prompt) :]
        return self._shown(prompt, longest), self._shown(answer, max(0, longest - len(prompt)))

    def _shown(self, ids: list[int], longest: int | None) -> ShownTokens:
        kept = ids if longest is None else ids[:longest]
        decode = self._chat.tokenizer.decode
        return ShownTokens(decode(kept), len(ids), decode(ids[len(kept) :]))


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer that can be looked through."""
    names = ("tokenizer.json", "tokenizer.model", "vocab.json")
    return any((folder / name).is_file() for name in names)
