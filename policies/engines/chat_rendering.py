# pyright: basic
"""Chat templates as transformers renders them: its tags, its filters, what it passes to them.

Every conversation that lpfloop renders is rendered here. Only TRL renders by itself, through
`tokenizer.apply_chat_template`, which calls the same function of transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...stores.records import Message
from .engine import UnloadableError

LONGEST_REASON = 300
"""Letters of what a template raised that are repeated."""

GIVEN = frozenset({"messages", "add_generation_prompt", "tools", "documents"})
"""What transformers passes to each template, besides the special tokens."""


class TemplateFaultError(UnloadableError):
    """A chat template that cannot be parsed, raises an error, or leaves out what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A chat template and what it reads.

    `name` is how errors call it. `tokens` are the tokenizer's special tokens by name (`bos_token`),
    `values` those of `engine.chat_template_kwargs`.
    """

    name: str
    text: str
    tokens: Mapping[str, str]
    values: Mapping[str, object]

    def render(
        self, messages: Sequence[Message], *, prompt: bool = True, parts: bool = False
    ) -> str:
        """Return the text of a conversation; a `prompt` ends where the model's turn begins.

        With `parts`, each content is a list of parts, as for models that also read images.

        Raises:
            TemplateFaultError: saying what the template raised.
        """
        from transformers.utils.chat_template_utils import render_jinja_template

        turns = [{"role": m.role, "content": _content(m, parts=parts)} for m in messages]
        given: dict[str, Any] = {**self.tokens, **self.values}
        try:
            texts, _ = render_jinja_template(
                [turns], chat_template=self.text, add_generation_prompt=prompt, **given
            )
        except Exception as error:
            # A template is a program of its author: it can raise anything.
            raise TemplateFaultError(f"{self.name}{_reason(error)}") from error
        return texts[0]

    def variables(self) -> set[str]:
        """Return the variables that the template reads, without what it sets itself.

        Raises:
            TemplateFaultError: if it cannot be parsed.
        """
        from jinja2 import TemplateSyntaxError, meta, nodes
        from transformers.utils.chat_template_utils import _compile_jinja_template

        try:
            environment = _compile_jinja_template(self.text).environment
        except TemplateSyntaxError as error:
            raise TemplateFaultError(f"{self.name}{_reason(error)}") from error
        parsed = environment.parse(self.text)
        own = {name.name for name in parsed.find_all(nodes.Name) if name.ctx == "store"}
        found = meta.find_undeclared_variables(parsed)
        return found - own - GIVEN - {*environment.globals} - {*self.tokens}


def tokenizer_template(tokenizer: Any, values: Mapping[str, object] | None = None) -> ChatTemplate:
    """Return the chat template that a loaded tokenizer has now."""
    return ChatTemplate(
        name=f"the chat template of {tokenizer.name_or_path}",
        text=tokenizer.chat_template,
        tokens=tokenizer.special_tokens_map,
        values=values or {},
    )


def _content(message: Message, *, parts: bool) -> str | list[dict[str, str]]:
    return [{"type": "text", "text": message.content}] if parts else message.content


def _reason(error: Exception) -> str:
    """Return what a template raised, on one line."""
    from jinja2 import TemplateError, TemplateSyntaxError

    said = " ".join(str(error).split())[:LONGEST_REASON]
    if isinstance(error, TemplateSyntaxError):
        return f": line {error.lineno}: {said}"
    own = type(error) is TemplateError
    return f' raised "{said}"' if own else f" raised {type(error).__name__}: {said}"
