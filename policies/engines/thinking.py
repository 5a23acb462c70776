# pyright: basic
"""Models that think before they answer: where their thought ends, and what of it is trained.

A thought stands between two tags, before the answer. A chat template may open it already where the
model's turn begins, and may render a finished turn in another way than the turn was begun (Qwen3
adds an empty thought, DeepSeek-R1 takes the thought away). Measuring and training need one way, so
the template of such a model is extended here: a conversation that ends with an answer becomes what
the model is prompted with, the answer as it stands, and the end of a turn.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...configs.engines import EngineConfig, Scalar
from ...stores.records import FinishReason
from .. import devices
from .chat_rendering import ChatTemplate, tokenizer_template
from .chat_template import folder_template
from .engine import EngineError
from .turn_end import ASKED, after_answer, end_turns

Tags = tuple[str, str]
KNOWN: tuple[Tags, ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
)
"""The tags of published families; the first that a model's files hold are its own."""

AS_SAID = (
    "{%- set as_said = none %}"
    "{%- if messages and messages[-1]['role'] == 'assistant' and not add_generation_prompt %}"
    "{%- set as_said = messages[-1]['content'] %}{%- set messages = messages[:-1] %}"
    "{%- set add_generation_prompt = true %}{%- endif %}"
)
"""What is put before a template; `THEN_ENDED` is put behind it."""
THEN_ENDED = "{%% if as_said is not none %%}{{ as_said + %s }}{%% endif %%}"
INSIDE = (
    "a turn of {} begins inside its thought, so an answer alone cannot follow: set "
    "training.thought to own, to train the thoughts, too, or to template"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatForm:
    """How a model's chat template is used: the values it is given, and the tags of a thought.

    `tags` of None are those that are found in the model's files. With `as_said`, finished turns of
    thinking models are what was prompted and said; else what the template makes of them. With
    `ended`, a template that ends no answer gets an end token after the last (`turn_end`).
    """

    values: Mapping[str, Scalar] = field(default_factory=dict)
    tags: Tags | None = None
    as_said: bool = True
    ended: bool = True

    @classmethod
    def of(cls, config: EngineConfig) -> "ChatForm":
        """Return the form in which an engine is configured to use a template."""
        return cls(values=config.chat_template_kwargs, tags=config.think_tags)


PLAIN = ChatForm()
AS_RENDERED = ChatForm(as_said=False, ended=False)
"""A template as it is: how reward models read conversations."""


@dataclass(frozen=True, slots=True)
class PartedAnswer:
    """What a model wrote: its answer, the thought before it, and how it ended."""

    text: str
    reasoning: str
    finish_reason: FinishReason


def said(
    text: str, thinking: "Thinking | None", *, ended: bool, stopped: bool = False
) -> PartedAnswer:
    """Part a thought from the answer after it.

    `ended` by the model itself; `stopped` by a text that was asked for. A text that does not begin
    with a thought is the answer as it stands.
    """
    finish: FinishReason = "stop" if ended or stopped else "length"
    inside = text.lstrip()
    if thinking is None or not (thinking.begun or inside.startswith(thinking.tags[0])):
        return PartedAnswer(text, "", finish)
    thought, closed, answer = inside.removeprefix(thinking.tags[0]).partition(thinking.tags[1])
    if not closed and not ended:
        finish = "truncated_thinking"
    return PartedAnswer(answer.lstrip(), thought.strip(), finish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """What a model's files say of its thoughts; `begun`: its turn begins inside one."""

    tags: Tags
    begun: bool


def with_thought(answer: str, reasoning: str | None, thinking: Thinking) -> str:
    """Return an answer after its thought, in the white space in which models write them."""
    if reasoning is None and not thinking.begun:
        return answer
    opened = "" if thinking.begun else f"{thinking.tags[0]}\n"
    return f"{opened}{reasoning or ''}\n{thinking.tags[1]}\n\n{answer}"


def fit_template(tokenizer: Any, form: ChatForm, folder: Path) -> Thinking | None:
    """Let a tokenizer's template have its values; return how the model thinks, if it does.

    Raises:
        EngineError: for a value that the template does not read.
    """
    require_values(tokenizer_template(tokenizer), form.values)
    own = tokenizer.chat_template
    if form.values:
        tokenizer.chat_template = "".join(map(_set, form.values.items())) + own
    if form.ended:
        end_turns(tokenizer, folder)
    tags = form.tags or _found(tokenizer, own)
    if tags is None:
        return None
    begun = _begins(tokenizer_template(tokenizer), tags)
    if form.as_said and any(tag in own for tag in tags):
        end = after_answer(tokenizer)
        if end is not None:
            ending = THEN_ENDED % _literal(end)
            # Jinja drops the line feed at a template's end, which is none any more.
            whole = tokenizer.chat_template.removesuffix("\n")
            tokenizer.chat_template = AS_SAID + whole + ending
    return Thinking(tags=tags, begun=begun)


def begins_inside(folder: Path, config: EngineConfig) -> bool:
    """Whether a turn of the model in a folder begins inside its thought, by its files alone.

    Raises:
        EngineError: if its chat template cannot be read, or raises at a question.
    """
    template = folder_template(folder, config)
    if template is None or not devices.installed("transformers"):
        return False
    known = KNOWN if config.think_tags is None else (config.think_tags,)
    return any(_begins(template, tags) for tags in known)


def require_values(template: ChatTemplate, values: Mapping[str, Scalar]) -> None:
    """Refuse values that a chat template does not read.

    Raises:
        EngineError: naming the first of them, and what the template reads.
    """
    read = template.variables() if values else set[str]()
    for name in values:
        if name not in read:
            told = f"it reads {', '.join(sorted(read))}" if read else "it reads none"
            raise EngineError(f"engine.chat_template_kwargs: {template.name} has no {name}; {told}")


def _set(named: tuple[str, Scalar]) -> str:
    """Return a value as the template's own assignment: so every user of the tokenizer has it."""
    name, value = named
    return f"{{%- set {name} = {_literal(value)} %}}"


def _literal(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)


def _found(tokenizer: Any, template: str) -> Tags | None:
    """Return the tags that a model's template or vocabulary has."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    for tags in KNOWN:
        if tags[1] in template or {*tags} <= added:
            return tags
    return None


def _begins(template: ChatTemplate, tags: Tags) -> bool:
    """Whether a turn of the model begins inside its thought."""
    asked = template.render((ASKED,)).rpartition(ASKED.content)[2]
    return asked.rfind(tags[0]) > asked.rfind(tags[1])
