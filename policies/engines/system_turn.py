# pyright: basic
"""Conversations with a system turn for models whose chat template has none.

Some families refuse it (Gemma, the first Mistral), and some leave its text out without a word. For
such a model the system's text, a blank line and the first user turn become one user turn: in
sampling, measuring and training alike, because the template itself is extended.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...stores.records import Message

SYSTEM, USER = "system", "user"
BETWEEN = "\n\n"
FOLDING = (
    "{%- if messages and messages|length > 1 and messages[0]['role'] == 'system' "
    "and messages[1]['role'] == 'user' %}"
    "{%- set messages = [{'role': 'user', 'content': "
    "messages[0]['content'] + '\\n\\n' + messages[1]['content']}] + messages[2:] %}"
    "{%- endif -%}\n"
)
"""What is put before a template; the beginning of it shows that it is there already."""
PROBE = (
    Message(role=SYSTEM, content="probe-of-system"),
    Message(role=USER, content="probe-of-user"),
)

Render = Callable[[Sequence[Message]], str]


def folded(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a conversation with its leading system turn as the beginning of the user's."""
    if len(messages) < 2 or (messages[0].role, messages[1].role) != (SYSTEM, USER):  # noqa: PLR2004
        return messages
    system, user, *others = messages
    return (Message(role=USER, content=system.content + BETWEEN + user.content), *others)


def fold_system(tokenizer: Any) -> bool:
    """Let a tokenizer fold system turns if its template has none; return whether it folds."""

    def render(messages: Sequence[Message]) -> str:
        turns = [{"role": m.role, "content": m.content} for m in messages]
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)

    template = tokenizer.chat_template
    if isinstance(template, str) and template.startswith(FOLDING):
        return True
    if not template or not has_no_system(render):
        return False
    if isinstance(template, dict):
        tokenizer.chat_template = {name: FOLDING + one for name, one in template.items()}
    else:
        tokenizer.chat_template = FOLDING + template
    return True


def has_no_system(render: Render) -> bool:
    """Whether a template refuses a system turn, or loses its text, but takes the user's alone."""
    from jinja2 import TemplateError

    try:
        render(PROBE[1:])
    except (TemplateError, TypeError):
        return False
    try:
        return PROBE[0].content not in render(PROBE)
    except (TemplateError, TypeError):
        return True


def folder_folds(folder: Path) -> bool:
    """Whether the model of a folder is to have its system turns folded, by its files alone."""
    render = folder_render(folder)
    return render is not None and has_no_system(render)


def folder_render(folder: Path, values: Mapping[str, object] | None = None) -> Render | None:
    """Return how the template of a model's folder renders what the model is asked, if it has one.

    It needs no tokenizer: texts that depend on one are empty.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    template = template_of(folder)
    if template is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    known: dict[str, Any] = {"raise_exception": refuse, "strftime_now": lambda _form: ""}

    def render(messages: Sequence[Message]) -> str:
        turns = [{"role": m.role, "content": m.content} for m in messages]
        made = environment.from_string(template, globals=known)
        given = {"bos_token": "", "eos_token": "", **(values or {})}
        return made.render(messages=turns, add_generation_prompt=True, **given)

    return render


def template_of(folder: Path) -> str | None:
    """Return the chat template of a model's folder."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text("utf-8")
    config = folder / "tokenizer_config.json"
    found = json.loads(config.read_bytes()).get("chat_template") if config.is_file() else None
    return found if isinstance(found, str) else None
