# pyright: basic
"""Conversations with a system turn for models whose chat template has none.

Some families refuse it (Gemma, the first Mistral), and some leave its text out without a word. For
such a model the system's text, a blank line and the first user turn become one user turn: in
sampling, measuring and training alike, because the template itself is extended.
"""

from typing import Any

from ...stores.records import Message
from .chat_rendering import ChatTemplate, TemplateFaultError, tokenizer_template

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


def folded(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a conversation with its leading system turn as the beginning of the user's."""
    if len(messages) < 2 or (messages[0].role, messages[1].role) != (SYSTEM, USER):  # noqa: PLR2004
        return messages
    system, user, *others = messages
    return (Message(role=USER, content=system.content + BETWEEN + user.content), *others)


def fold_system(tokenizer: Any) -> bool:
    """Let a tokenizer fold system turns if its template has none; return whether it folds."""
    template = tokenizer.chat_template
    if template and template.startswith(FOLDING):
        return True
    if not template or not has_no_system(tokenizer_template(tokenizer)):
        return False
    tokenizer.chat_template = FOLDING + template
    return True


def has_no_system(template: ChatTemplate) -> bool:
    """Whether a template refuses a system turn, or loses its text, but takes the user's alone."""
    try:
        template.render(PROBE[1:])
    except TemplateFaultError:
        return False
    try:
        return PROBE[0].content not in template.render(PROBE)
    except TemplateFaultError:
        return True
