# pyright: basic
"""Models that think before they answer: the tags around a thought, and the answer after it.

A chat template may open the thought already at the beginning of the model's turn (DeepSeek-R1), and
may render a finished turn differently from the beginning of the turn (Qwen3 adds an empty thought,
DeepSeek-R1 removes the thought). `chat.fit_template` makes measuring and training read the prompt
and the text that the model had and wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...configs.engines import EngineConfig, Scalar
from ...stores.records import FinishReason
from .. import devices
from .chat_template import PROBE_QUESTION, ChatTemplate, folder_template

Tags = tuple[str, str]
KNOWN: tuple[Tags, ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
)
"""The tags of published families; a model has the first pair that its files contain."""

INSIDE = (
    "a turn of {} begins inside its thought, so an answer alone cannot follow: set "
    "training.thought to own, to train the thoughts, too, or to template"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatForm:
    """The use of a model's chat template.

    `values` are given to the template. `tags` of None are found in the model's files. With
    `as_said`, a thinking model's finished turn is its prompt and its output unchanged; otherwise
    the template's rendering of it. With `ended`, a template that writes no end token after an
    answer gets one.
    """

    values: Mapping[str, Scalar] = field(default_factory=dict)
    tags: Tags | None = None
    as_said: bool = True
    ended: bool = True

    @classmethod
    def of(cls, config: EngineConfig) -> "ChatForm":
        """Return the form that an engine is configured to use."""
        return cls(values=config.chat_template_kwargs, tags=config.think_tags)


PLAIN = ChatForm()
AS_RENDERED = ChatForm(as_said=False, ended=False)
"""A template unchanged, as reward models read conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """A model's marks of its thoughts; `begun`: its turn begins inside one."""

    tags: Tags
    begun: bool


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A model's output: its answer, the thought before it, and how it ended."""

    text: str
    reasoning: str
    finish_reason: FinishReason


def parse_answer(
    text: str, thinking: Thinking | None, *, ended: bool, stopped: bool = False
) -> ParsedAnswer:
    """Separate a thought from the answer after it; a text without a thought is all answer.

    `ended`: the model wrote its end token. `stopped`: it wrote one of the sampling's stop texts.
    """
    finish: FinishReason = "stop" if ended or stopped else "length"
    inside = text.lstrip()
    if thinking is None or not (thinking.begun or inside.startswith(thinking.tags[0])):
        return ParsedAnswer(text, "", finish)
    thought, closed, answer = inside.removeprefix(thinking.tags[0]).partition(thinking.tags[1])
    if not closed and not ended:
        finish = "truncated_thinking"
    return ParsedAnswer(answer.lstrip(), thought.strip(), finish)


def with_thought(answer: str, reasoning: str | None, thinking: Thinking) -> str:
    """Return an answer after its thought, with the line breaks that models write."""
    if reasoning is None and not thinking.begun:
        return answer
    opened = "" if thinking.begun else f"{thinking.tags[0]}\n"
    return f"{opened}{reasoning or ''}\n{thinking.tags[1]}\n\n{answer}"


def begins_inside(folder: Path, config: EngineConfig) -> bool:
    """Whether a turn of the model in a folder begins inside its thought, by its files alone.

    Raises:
        EngineError: if its chat template cannot be read, or cannot render a question.
    """
    template = folder_template(folder, config)
    if template is None or not devices.installed_version("transformers"):
        return False
    known = KNOWN if config.think_tags is None else (config.think_tags,)
    # Rendering imports transformers, which takes seconds: most templates name no tag.
    named = [tags for tags in known if tags[0] in template.text]
    return any(opens_thought(template, tags) for tags in named)


def opens_thought(template: ChatTemplate, tags: Tags) -> bool:
    """Whether a template opens a thought at the beginning of the model's turn, without its end."""
    after_question = template.render((PROBE_QUESTION,)).rpartition(PROBE_QUESTION.content)[2]
    return after_question.rfind(tags[0]) > after_question.rfind(tags[1])
