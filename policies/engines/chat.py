"""From conversations to token ids and back, the same way in every engine that holds a tokenizer.

Text is decoded once from all tokens, special tokens left out, so it does not depend on how an
engine streams. An answer ends at any of the end tokens that the model's own files name.
"""

# pyright: basic

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ...stores.chat_markers import WORD_JOINER
from ...stores.records import Message
from .chat_rendering import TemplateFaultError, tokenizer_template
from .chat_template import load_tokenizer
from .engine import Completion, EngineError, Request
from .system_turn import fold_system
from .template_check import require_turns
from .thinking import PLAIN, ChatForm, PartedAnswer, fit_template, said
from .turn_end import turn_ends

DISTINCT_CONVERSATIONS = 4096
"""Tokenized conversations in the cache: the n candidates of a prompt follow one another."""

SPARE = 8
"""Tokens without a character of their own that may stand within a text that ends a completion."""


class ChatTokenizer:
    """A tokenizer with a chat template, and the tokens that end a turn."""

    def __init__(self, tokenizer: Any, folder: Path, form: ChatForm = PLAIN) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise EngineError(
                f"{folder}: the tokenizer has no chat template; name one with engine.template"
            )
        require_turns(tokenizer_template(tokenizer, form.values))
        fold_system(tokenizer)
        self.thinking = fit_template(tokenizer, form, folder)
        self.tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        self._special = tuple(sorted(str(token) for token in added.values() if token.special))
        tags = self.thinking.tags if self.thinking else ()
        self._tags = {n: str(t) for n, t in added.items() if t.special and str(t) in tags}
        self.stops = turn_ends(tokenizer, folder)
        self._prompt = lru_cache(maxsize=DISTINCT_CONVERSATIONS)(self._encode_prompt)

    @classmethod
    def of(cls, folder: Path, template: str | None, form: ChatForm) -> "ChatTokenizer":
        """Load the tokenizer of a model's folder as all engines and trainers use it.

        It is nobody else's: vLLM's own renders by copies that a change of template does not reach.
        """
        return cls(load_tokenizer(folder, template), folder, form)

    def prompt(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Return the token ids of a conversation that ends where the model's turn begins."""
        return self._prompt(messages)

    def admitted(self, request: Request, context: int) -> tuple[int, ...] | Completion:
        """Return the token ids of a request's prompt, or its completion if it cannot be asked.

        That is `overlong` if the prompt leaves no room in the `context`, and `failed` if the chat
        template raises an error at the conversation.
        """
        try:
            prompt = self.prompt(request.messages)
        except TemplateFaultError as error:
            return replace(overlong(request, 0), finish_reason="failed", error=str(error))
        return prompt if len(prompt) < context else overlong(request, len(prompt))

    def whole(self, messages: tuple[Message, ...]) -> list[int]:
        """Return the token ids of a conversation whose last turn is the answer."""
        return self._encode(messages, prompt=False)

    def parted(self, messages: tuple[Message, ...]) -> tuple[list[int], list[int]]:
        """Return the token ids of the prompt, and of the answer that is the last turn.

        Trainers and engines measure answers by this one division. The answer ends with its end
        token: what a template writes after it (a line feed) is not the model's choice. If a
        template renders a finished turn differently from its beginning, the answer starts at the
        first difference.
        """
        prompt, whole = self.prompt(messages[:-1]), self.whole(messages)
        both = enumerate(zip(prompt, whole, strict=False))
        shorter = min(len(prompt), len(whole))
        start = next((i for i, (asked, said) in both if asked != said), shorter)
        ends = [i for i, token in enumerate(whole) if i >= start and token in self.stops]
        return whole[:start], whole[start : ends[-1] + 1 if ends else None]

    def judged(
        self, messages: tuple[Message, ...], *, sees_end: bool, ended: bool = True
    ) -> list[int]:
        """Return the token ids of a conversation as a reward model reads them.

        Behind an answer that was cut off there is no end token, nor what the template writes after
        it; without `sees_end` behind none.
        """
        if sees_end and ended:
            return self.whole(messages)
        prompt, answer = self.parted(messages)
        return prompt + answer[: -1 if answer and answer[-1] in self.stops else None]

    def biases(self, logit_bias: tuple[tuple[int | str, float], ...]) -> dict[int, float]:
        """Return what to add to each token's logit, by token id.

        Raises:
            EngineError: if a text is not exactly one token, or an id is not in the vocabulary.
        """
        return {self._token(token): added for token, added in logit_bias}

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return self.tokenizer.get_vocab()

    def _token(self, token: int | str) -> int:
        if isinstance(token, int):
            if not 0 <= token < len(self.tokenizer):
                raise EngineError(
                    f"logit_bias: there is no token {token}; the last one is "
                    f"{len(self.tokenizer) - 1}"
                )
            return token
        found = self._vocabulary.get(token)
        # Vocabularies spell entries in their own way (a leading space, letters beyond ASCII).
        ids = self.tokenizer.encode(token, add_special_tokens=False) if found is None else [found]
        if len(ids) != 1:
            raise EngineError(
                f"logit_bias: {token!r} is {len(ids)} tokens to this model; name single tokens, or "
                "leave it out"
            )
        return int(ids[0])

    def said(self, token_ids: Sequence[int], stop: Sequence[str] = ()) -> PartedAnswer:
        """Decode a completion: neither its end token nor the text that stopped it is part of it."""
        ended = bool(token_ids) and token_ids[-1] in self.stops
        text = self._decoded(token_ids[:-1] if ended else token_ids)
        places = [place for one in stop if (place := text.find(one)) >= 0]
        if places and not ended:
            text = text[: min(places)]
        return said(text, self.thinking, ended=ended, stopped=bool(places))

    def stops_at(self, token_ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last of the drawn tokens completes a text that ends a completion."""
        last = token_ids[-(max(map(len, stop)) + SPARE) :]
        near = self.tokenizer.decode(list(last), skip_special_tokens=True)
        return any(one in near for one in stop)

    def _decoded(self, token_ids: Sequence[int]) -> str:
        """Decode without special tokens, but for the tags of a thought."""
        if not self._tags:
            return self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        text, run = "", list[int]()
        for token in token_ids:
            if token in self._tags:
                text += self.tokenizer.decode(run, skip_special_tokens=True) + self._tags[token]
                run = []
            else:
                run.append(token)
        return text + self.tokenizer.decode(run, skip_special_tokens=True)

    def _defused(self, text: str) -> str:
        """Break up names of special tokens in a text, so that it cannot forge a turn."""
        for name in self._special:
            text = text.replace(name, f"{name[0]}{WORD_JOINER}{name[1:]}")
        return text

    def _encode_prompt(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._encode(messages, prompt=True))

    def _encode(self, messages: tuple[Message, ...], *, prompt: bool) -> list[int]:
        turns = [Message(role=m.role, content=self._defused(m.content)) for m in messages]
        text = tokenizer_template(self.tokenizer).render(turns, prompt=prompt)
        return self.tokenizer(text, add_special_tokens=False).input_ids


def overlong(request: Request, prompt_tokens: int) -> Completion:
    """Return the completion of a prompt that does not fit the context."""
    return Completion(
        request_id=request.request_id,
        text="",
        prompt_tokens=prompt_tokens,
        completion_tokens=0,
        finish_reason="overlong",
        logprob=None,
    )
