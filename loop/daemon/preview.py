"""Real requests of every stage, before any is sent: rendered as the model reads them.

They come from a rehearsal. If the model's folder is on this machine, its own chat template shows
the special tokens, and its tokenizer counts; an endpoint is sent the messages. Of a training one
row is shown, its learned tokens marked.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...configs.engines import EngineConfig
from ...configs.schema import RunConfig
from ...policies.engines.chat import ChatTokenizer
from ...policies.engines.chat_template import template_text
from ...policies.engines.thinking import ChatForm
from ...stores.records import Message
from ..data.text import visible
from ..run.models import Served, locate_model
from .rehearsal import Rehearsal
from .stand_ins import ModelCalls, RehearsedStage, Sent

WIDTH = 80
EXCERPT = 160
"""Letters of the placeholders for replies."""
INDENT = "  | "
LEARNED, END = "⟦", "⟧"
"""The marks around the tokens that a trainer learns."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A folder with one of these holds a tokenizer."""


@dataclass(frozen=True, slots=True)
class ShownTokens:
    """Text with its special tokens; `tokens` counts all of them, `cut` is beyond a limit."""

    text: str
    tokens: int
    cut: str = ""

    @classmethod
    def of(
        cls, chat: ChatTokenizer, ids: Sequence[int], longest: int | None = None
    ) -> "ShownTokens":
        """Decode token ids; `cut` is the text after the first `longest` tokens."""
        kept = ids[:longest]
        return cls(chat.decode(kept), len(ids), chat.decode(ids[len(kept) :]))


def stages_of(rehearsal: Rehearsal) -> list[str]:
    """Return the stages of which there is something to show, each once."""
    shown = (s.stage for s in rehearsal.stages if s.calls or s.row or s.first_scored)
    return list(dict.fromkeys(shown))


def preview_lines(rehearsal: Rehearsal, stage: str | None, count: int) -> Iterator[str]:
    """Yield each stage's requests, or one stage's or verb's, as lines of at most 80 columns."""
    preview = _Preview(config=rehearsal.config)
    shown = set[str]()
    for notes in rehearsal.stages:
        matches = stage is None or stage in (notes.stage, notes.stage.partition(":")[0])
        if matches and notes.stage not in shown:
            shown.add(notes.stage)
            yield from preview.stage(notes, count)
    if rehearsal.ends is not None:
        yield from textwrap.wrap(
            f"as it was rehearsed, it ends there: {visible(rehearsal.ends)}", WIDTH
        )


@dataclass(frozen=True, kw_only=True)
class _Preview:
    """Shows the requests of stages; each tokenizer is loaded once."""

    config: RunConfig
    _chats: dict[tuple[str, str], ChatTokenizer | None] = field(
        default_factory=dict[tuple[str, str], ChatTokenizer | None], init=False
    )

    def stage(self, notes: RehearsedStage, count: int) -> Iterator[str]:
        """Yield a stage's requests to each of its models, and its training rows."""
        for calls in notes.calls.values():
            for sent in calls.sent[:count]:
                yield from self._request(notes, calls, sent)
        if notes.first_scored is not None:
            yield f"== {notes.stage} -> {self.config.reward.model}"
            yield from _block(_dialogue(notes.first_scored.messages))
            yield ""
        if notes.row is not None and notes.job is not None:
            yield from self._row(notes, notes.row)

    def _request(self, notes: RehearsedStage, calls: ModelCalls, sent: Sent) -> Iterator[str]:
        served, sampling = calls.served, sent.sampling
        drawn = f"temperature {sampling.temperature:g}, at most {sampling.max_tokens} tokens"
        yield from textwrap.wrap(f"== {notes.stage} -> {served.name}, {drawn}", WIDTH)
        messages = sent.request.messages
        chat = self._chat(served)
        if chat is None:
            yield "  sent as messages; its template and its tokens are the server's"
            yield from _block(_dialogue(messages))
        else:
            text = ShownTokens.of(chat, chat.prompt(messages))
            size = f"{text.tokens:,} tokens by its own template{_room(served, sent, text)}"
            yield from textwrap.wrap(size, WIDTH, initial_indent="  ", subsequent_indent="  ")
            yield from _block(text.text)
        what = "an answer" if sent.request.example is None else "a reply that would be read"
        yield f"  {what}, as the rehearsal had it:"
        yield from _block(sent.reply if sent.request.example else textwrap.shorten(sent.reply, 70))
        yield ""

    def _row(self, notes: RehearsedStage, row: Any) -> Iterator[str]:
        """Yield a row that a training reads, cut if it is too long, learned tokens marked."""
        job, chat = notes.job, self._chat_at(locate_model(self.config.policy.model))
        if job is None:
            return
        longest = job.settings.max_length
        yield f"== {notes.stage} -> a row of {job.method}, at most {longest:,} tokens"
        for name, messages in _conversations(row):
            if chat is None:
                yield f"  {name}: the policy's tokenizer is not at hand"
                yield from _block(_dialogue(messages))
            elif messages[-1].role != "assistant":
                prompt = ShownTokens.of(chat, chat.prompt(messages))
                yield f"  {name}: {prompt.tokens:,} tokens; what is sampled of it is learned"
                yield from _block(prompt.text)
            else:
                yield from _learned_lines(name, chat, messages, longest)
        yield ""

    def _chat(self, served: Served) -> ChatTokenizer | None:
        """Return the tokenizer of a model that runs here; a trained one's is the policy's."""
        if served.canary is not None:
            return self._chat_at(locate_model(self.config.policy.model))
        return None if served.is_elsewhere else self._chat_at(served.location, served.engine)

    def _chat_at(self, place: str, engine: EngineConfig | None = None) -> ChatTokenizer | None:
        engine = self.config.policy.engine if engine is None else engine
        form, template = ChatForm.of(engine), template_text(engine.template)
        key = (place, repr((form, template)))
        if key not in self._chats:
            folder = Path(place)
            known = any((folder / name).is_file() for name in TOKENIZER_FILES)
            self._chats[key] = ChatTokenizer.of(folder, template, form) if known else None
        return self._chats[key]


def _room(served: Served, sent: Sent, text: ShownTokens) -> str:
    """Return the part of a request that exceeds a model's context."""
    context = served.engine.max_model_len
    if not isinstance(context, int):
        return ""
    left = context - text.tokens
    if left <= 0:
        return f": it does not fit into {context:,} and would not be sent"
    if left < sent.sampling.max_tokens:
        return f", which leaves {left:,} of {context:,} for the answer: it may be cut"
    return f" of {context:,}"


def _learned_lines(
    name: str, chat: ChatTokenizer, messages: tuple[Message, ...], longest: int
) -> Iterator[str]:
    """Yield prompt and answer as a trainer divides them: only the answer's tokens are learned.

    TRL learns every token that a template writes after the prompt, also a line feed after the end
    token.
    """
    length = len(chat.split_answer(messages)[0])
    ids = chat.encode(messages)
    prompt = ShownTokens.of(chat, ids[:length], longest)
    answer = ShownTokens.of(chat, ids[length:], max(0, longest - length))
    whole = prompt.tokens + answer.tokens
    over = f", {whole - longest:,} of them cut off" if whole > longest else ""
    yield f"  {name}: {whole:,} tokens, {answer.tokens:,} learned (in {LEARNED}{END}){over}"
    yield from _block(f"{prompt.text}{LEARNED}{answer.text}{END}")
    if prompt.cut or answer.cut:
        yield "  cut off:"
        yield from _block(prompt.cut + answer.cut)


def _conversations(row: Any) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Yield the conversations of a row that is trained on, by name."""
    messages = _messages(row["messages"] if "messages" in row else row["prompt"])
    names = [name for name in ("chosen", "rejected", "completion") if row.get(name)]
    for name in names:
        yield name, (*messages, *_messages(row[name]))
    if not names:
        yield "prompt", messages


def _messages(turns: object) -> tuple[Message, ...]:
    return tuple(Message(**turn) for turn in cast("Sequence[dict[str, Any]]", turns))


def _dialogue(messages: Sequence[Message]) -> str:
    return "\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def _block(text: str) -> Iterator[str]:
    """Yield a text line by line, indented and wrapped, with hidden characters made visible."""
    for line in visible(text).splitlines() or [""]:
        parts = textwrap.wrap(
            line, WIDTH - len(INDENT), drop_whitespace=False, replace_whitespace=False
        )
        for part in parts or [""]:
            yield f"{INDENT}{part}"
