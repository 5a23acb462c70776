"""Refuses chat templates that cannot be used, before a model is loaded or a run's folder made."""

from pathlib import Path

from ...configs.engines import EngineConfig
from ...stores.records import Message
from .. import devices
from .chat_rendering import ChatTemplate, TemplateFaultError
from .chat_template import folder_template, require_template
from .system_turn import SYSTEM, USER, folded, has_no_system
from .thinking import require_values

ANSWER = "assistant"
SHAPES = (
    (USER,),
    (SYSTEM, USER),
    (USER, ANSWER),
    (USER, ANSWER, USER, ANSWER, USER),
    (SYSTEM, USER, ANSWER, USER, ANSWER, USER),
)
"""The roles of the conversations that a template must render whole."""

ADVICE = (
    "; name a template that renders each turn by engine.template=FILE.jinja (for the policy "
    "`--set policy.engine.template=FILE.jinja`)"
)


def require_chat(folder: Path, config: EngineConfig) -> None:
    """Refuse a model's folder whose chat template is missing or cannot be used.

    If transformers is not installed, nothing here can render it, and only its presence is checked.

    Raises:
        EngineError: naming the template and what is wrong with it.
    """
    require_template(folder, config.template)
    template = folder_template(folder, config)
    if template is None or not devices.installed("transformers"):
        return
    require_values(template, config.chat_template_kwargs)
    require_turns(template)


def folds_system(folder: Path, config: EngineConfig) -> bool:
    """Return whether system turns become part of the user's turn for the model in a folder.

    Raises:
        EngineError: if its template cannot be read.
    """
    template = folder_template(folder, config)
    here = devices.installed("transformers")
    return template is not None and bool(here) and has_no_system(template)


def require_turns(template: ChatTemplate) -> None:
    """Refuse a template that does not render a question, or leaves out what somebody said.

    Longer conversations may raise an error: the requests that have them fail with its text.

    Raises:
        TemplateFaultError: naming the template, and what it raised or left out.
    """
    try:
        template.render(_conversation((USER,)))
    except TemplateFaultError as error:
        raise TemplateFaultError(f"{error}{_hint(template)}{ADVICE}") from error
    folds = has_no_system(template)
    for roles in SHAPES:
        lost = _lost(template, _conversation(roles), folds=folds)
        if lost is not None:
            told = f"the {roles[lost]}'s text (turn {lost + 1} of {', '.join(roles)})"
            raise TemplateFaultError(f"{template.name} leaves out {told}{_hint(template)}{ADVICE}")


def _conversation(roles: tuple[str, ...]) -> tuple[Message, ...]:
    """Return a conversation whose turns have two lines, each found nowhere else."""
    return tuple(
        Message(role=role, content=f"probe-{place}-begins\nprobe-{place}-ends")
        for place, role in enumerate(roles)
    )


def _lost(template: ChatTemplate, messages: tuple[Message, ...], *, folds: bool) -> int | None:
    """Return the place of the first turn of which a template leaves something out, if any."""
    asked = folded(messages) if folds else messages
    try:
        text = template.render(asked, prompt=messages[-1].role == USER)
    except TemplateFaultError:
        return None
    return next((n for n, m in enumerate(messages) if not _holds(text, m)), None)


def _holds(text: str, message: Message) -> bool:
    return all(line in text for line in message.content.splitlines())


def _hint(template: ChatTemplate) -> str:
    """Say if a template renders a question only when its content is a list of parts."""
    question = _conversation((USER,))
    if _renders(template, question, parts=True) and not _renders(template, question, parts=False):
        return "; it reads contents that are lists of parts, and lpfloop passes them as texts"
    return ""


def _renders(template: ChatTemplate, question: tuple[Message, ...], *, parts: bool) -> bool:
    try:
        return _holds(template.render(question, parts=parts), question[0])
    except TemplateFaultError:
        return False
