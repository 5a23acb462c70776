# pyright: basic
"""From conversations to token ids and back, the same in every engine and trainer.

An engine decodes text once from all tokens of an answer, without special tokens, so the text does
not depend on how the engine streams. An answer ends at any of the end tokens that the model's files
name.

Sampling, measuring and training must read a conversation alike, also if TRL renders it, so the
parts that a model's template lacks are added to the text of the template itself: a system turn
(`fold_system`), an end of turn, and finished turns of thinking models (`fit_template`).
"""

import json
import sys
from collections.abc import Sequence, Sized
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ...stores.chat_markers import WORD_JOINER
from ...stores.records import Message
from .chat_template import (
    PROBE_QUESTION,
    TemplateFaultError,
    load_tokenizer,
    require_turns,
    require_values,
    tokenizer_template,
)
from .engine import Completion, EngineError, Request, Sampling, failed_completion, overlong
from .thinking import KNOWN, PLAIN, ChatForm, ParsedAnswer, Thinking, opens_thought, parse_answer

FOLDING = (
    "{%- if messages and messages|length > 1 and messages[0]['role'] == 'system' "
    "and messages[1]['role'] == 'user' %}"
    "{%- set messages = [{'role': 'user', 'content': "
    "messages[0]['content'] + '\\n\\n' + messages[1]['content']}] + messages[2:] %}"
    "{%- endif -%}\n"
)
"""Put before a template without a system turn; a template that begins with it has it already."""
ENDING = (
    "{%% if messages and messages[-1]['role'] == 'assistant' and not add_generation_prompt %%}"
    "{{ %s }}{%% endif %%}"
)
"""Put after a template that writes no end token after the last answer."""
AS_GIVEN = (
    "{%- set as_said = none %}"
    "{%- if messages and messages[-1]['role'] == 'assistant' and not add_generation_prompt %}"
    "{%- set as_said = messages[-1]['content'] %}{%- set messages = messages[:-1] %}"
    "{%- set add_generation_prompt = true %}{%- endif %}"
)
THEN_ENDED = "{%% if as_said is not none %%}{{ as_said + %s }}{%% endif %%}"
"""`AS_SAID` is put before a thinking model's template, and this after it."""

CACHED_PROMPTS = 4096
"""Tokenized conversations in the cache: the candidates of one prompt are drawn in a row."""

SPARE_TOKENS = 8
"""The most tokens without a character of their own within a text that ends a completion."""


class ChatTokenizer:
    """A tokenizer with a chat template, and the tokens that end a turn."""

    def __init__(self, tokenizer: Any, folder: Path, form: ChatForm = PLAIN) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise EngineError(
                f"{folder}: the tokenizer lacks a chat template; name one with engine.template"
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
        self._prompt = lru_cache(maxsize=CACHED_PROMPTS)(self._encode_prompt)

    @classmethod
    def of(cls, folder: Path, template: str | None, form: ChatForm) -> "ChatTokenizer":
        """Load the tokenizer of a model's folder as all engines and trainers use it.

        vLLM's own tokenizer cannot be used: it renders with copies that a changed template does not
        affect.
        """
        tokenizer = load_tokenizer(folder, template)
        # Callers bound lengths themselves; transformers would warn about each long text.
        tokenizer.model_max_length = sys.maxsize
        return cls(tokenizer, folder, form)

    def prompt(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Return the token ids of a conversation that ends where the model's turn begins."""
        return self._prompt(messages)

    def admit(self, request: Request, context: int) -> tuple[int, ...] | Completion:
        """Return the token ids of a request's prompt, or a completion if it cannot be drawn.

        The completion is `overlong` if the prompt leaves no room in the `context`, and `failed` if
        the chat template raises an error.
        """
        try:
            prompt = self.prompt(request.messages)
        except TemplateFaultError as error:
            return failed_completion(request.request_id, str(error))
        return prompt if len(prompt) < context else overlong(request, len(prompt))

    def encode(self, messages: tuple[Message, ...]) -> list[int]:
        """Return the token ids of a conversation whose last turn is the answer."""
        return self._encode(messages, prompt=False)

    def split_answer(self, messages: tuple[Message, ...]) -> tuple[list[int], list[int]]:
        """Return the token ids of the prompt, and of the answer that is the last turn.

        Trainers and engines both measure answers by this division. The answer ends with its end
        token: the text that a template writes after it (a line feed) is not the model's choice. If
        a template renders a finished turn differently from its beginning, the answer starts at the
        first difference.
        """
        prompt, whole = self.prompt(messages[:-1]), self.encode(messages)
        both = enumerate(zip(prompt, whole, strict=False))
        shorter = min(len(prompt), len(whole))
        start = next((i for i, (one, other) in both if one != other), shorter)
        ends = [i for i, token in enumerate(whole) if i >= start and token in self.stops]
        return whole[:start], whole[start : ends[-1] + 1 if ends else None]

    def encode_judged(
        self, messages: tuple[Message, ...], *, sees_end: bool, ended: bool = True
    ) -> list[int]:
        """Return the token ids of a conversation as a reward model reads them.

        A truncated answer lacks the end token, and the text that the template writes after it.
        Without `sees_end` all answers lack them.
        """
        if sees_end and ended:
            return self.encode(messages)
        prompt, answer = self.split_answer(messages)
        return prompt + answer[: -1 if answer and answer[-1] in self.stops else None]

    def biases(self, logit_bias: tuple[tuple[int | str, float], ...]) -> dict[int, float]:
        """Return the bias of each token's logit, by token id.

        Raises:
            EngineError: if a text is not exactly one token, or an id is not in the vocabulary.
        """
        return {self._token(token): added for token, added in logit_bias}

    def answer(self, token_ids: Sequence[int], stop: Sequence[str] = ()) -> ParsedAnswer:
        """Decode a completion, without its end token or the text that stopped it."""
        ended = bool(token_ids) and token_ids[-1] in self.stops
        text = self._text(token_ids[:-1] if ended else token_ids)
        places = [place for one in stop if (place := text.find(one)) >= 0]
        if places and not ended:
            text = text[: min(places)]
        return parse_answer(text, self.thinking, ended=ended, stopped=bool(places))

    def completion(
        self,
        request: Request,
        sampling: Sampling,
        prompt: Sized,
        token_ids: Sequence[int],
        logprob: float | None,
    ) -> Completion:
        """Return the completion of the tokens that were drawn after a prompt of tokens."""
        answer = self.answer(token_ids, sampling.stop)
        return Completion(
            request_id=request.request_id,
            text=answer.text,
            reasoning=answer.reasoning,
            prompt_tokens=len(prompt),
            completion_tokens=len(token_ids),
            finish_reason=answer.finish_reason,
            logprob=logprob,
            token_ids=tuple(token_ids) if sampling.token_ids else None,
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, with the special ones."""
        return self.tokenizer.decode(list(token_ids))

    def stops_at(self, token_ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last of the drawn tokens completes a text that ends a completion."""
        last = token_ids[-(max(map(len, stop)) + SPARE_TOKENS) :]
        near = self.tokenizer.decode(list(last), skip_special_tokens=True)
        return any(one in near for one in stop)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return self.tokenizer.get_vocab()

    def _token(self, token: int | str) -> int:
        if isinstance(token, int):
            if not 0 <= token < len(self.tokenizer):
                raise EngineError(
                    f"logit_bias: no token {token}; the last one is {len(self.tokenizer) - 1}"
                )
            return token
        found = self._vocabulary.get(token)
        # Vocabularies encode entries in various ways (a leading space, letters beyond ASCII).
        ids = self.tokenizer.encode(token, add_special_tokens=False) if found is None else [found]
        if len(ids) != 1:
            raise EngineError(
                f"logit_bias: {token!r} is {len(ids)} tokens to this model; name single tokens, or "
                "leave it out"
            )
        return int(ids[0])

    def _text(self, token_ids: Sequence[int]) -> str:
        """Decode without special tokens other than the tags of a thought."""
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

    def _defuse(self, text: str) -> str:
        """Break up names of special tokens in a text, so that it cannot forge a turn."""
        for name in self._special:
            text = text.replace(name, f"{name[0]}{WORD_JOINER}{name[1:]}")
        return text

    def _encode_prompt(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(self._encode(messages, prompt=True))

    def _encode(self, messages: tuple[Message, ...], *, prompt: bool) -> list[int]:
        turns = [Message(role=m.role, content=self._defuse(m.content)) for m in messages]
        text = tokenizer_template(self.tokenizer).render(turns, prompt=prompt)
        return self.tokenizer(text, add_special_tokens=False).input_ids


def fold_system(tokenizer: Any) -> bool:
    """Make a tokenizer fold system turns if its template lacks them; return whether it folds."""
    template = tokenizer.chat_template
    if template and template.startswith(FOLDING):
        return True
    if not template or not tokenizer_template(tokenizer).has_no_system():
        return False
    tokenizer.chat_template = FOLDING + template
    return True


def fit_template(tokenizer: Any, form: ChatForm, folder: Path) -> Thinking | None:
    """Fit a tokenizer's template to a form; return the model's thinking, if it thinks.

    Raises:
        EngineError: for a value that the template does not read.
    """
    require_values(tokenizer_template(tokenizer), form.values)
    own = tokenizer.chat_template
    # Assignments in the template itself affect every user of the tokenizer.
    values = (f"{{%- set {name} = {_literal(value)} %}}" for name, value in form.values.items())
    tokenizer.chat_template = "".join(values) + own
    if form.ended:
        _end_turns(tokenizer, folder)
    tags = form.tags or _known_tags(tokenizer, own)
    if tags is None:
        return None
    template = tokenizer_template(tokenizer)
    begun = opens_thought(template, tags)
    end = template.after_answer()
    if form.as_said and any(tag in own for tag in tags) and end is not None:
        tokenizer.chat_template = AS_GIVEN + _append_ending(
            template.text, THEN_ENDED % _literal(end)
        )
    return Thinking(tags=tags, begun=begun)


def stop_token_ids(folder: Path) -> tuple[int, ...]:
    """Return the end tokens that the model's configuration files name, sorted.

    Some families (Gemma) name their end-of-turn token only in `generation_config.json`. Its
    sampling fields are never used.
    """
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        value: Any = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        if value is not None:
            found.update(value if isinstance(value, list) else [int(value)])
    return tuple(sorted(found))


def turn_ends(tokenizer: Any, folder: Path) -> tuple[int, ...]:
    """Return the tokens that end a turn: from the model's files and from the tokenizer."""
    own = tokenizer.eos_token_id
    named = set(stop_token_ids(folder)) | (set[int]() if own is None else {int(own)})
    return tuple(sorted(named))


def _end_turns(tokenizer: Any, folder: Path) -> None:
    """Make a tokenizer's template end the last answer, if it writes no end token after it.

    GLM-4 begins a turn with its role, without an end: the model generates `<|user|>`, which begins
    the next turn. Trained on the output of its template, it would not learn to end at all.
    """
    template = tokenizer_template(tokenizer)
    ends = tokenizer.convert_ids_to_tokens(list(turn_ends(tokenizer, folder)))
    written = template.after_answer()
    if not ends or written is None or any(end in written for end in ends):
        return
    # If the token that begins the next turn is an end token, the model ends its turn with it.
    following = (template.after_answer(PROBE_QUESTION) or "").removeprefix(written).lstrip()
    begun = [end for end in ends if following.startswith(end)]
    end = begun[0] if begun else (tokenizer.eos_token or ends[0])
    tokenizer.chat_template = _append_ending(template.text, ENDING % _literal(end))


def _append_ending(template: str, ending: str) -> str:
    # Jinja drops a line feed at a template's end; here it is not at the end any more.
    return template.removesuffix("\n") + ending


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _known_tags(tokenizer: Any, template: str) -> tuple[str, str] | None:
    """Return the tags of a thought that a model's template or vocabulary has."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    for tags in KNOWN:
        if tags[1] in template or {*tags} <= added:
            return tags
    return None
