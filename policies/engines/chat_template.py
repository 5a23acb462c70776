# pyright: basic
"""Chat templates: their source, their rendering, and checks that they can be used.

A model that was trained to chat has a template in its folder. A base model does not:
`engine.template` names a shipped one, or a file. The shipped `alpaca` is the prompt of Stanford
Alpaca (tatsu-lab/stanford_alpaca, Apache-2.0); it has two forms, and uses the longer one if the
user's text has the heading of an input.

lpfloop renders every conversation by `ChatTemplate.render`. Only TRL renders separately, through
`tokenizer.apply_chat_template`, which calls the same function of transformers.

Some families refuse a system turn (Gemma, the first Mistral), and some drop its text silently. For
such a model the system's text, a blank line and the first user turn become one user turn.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configs.engines import EngineConfig, Scalar
from ...stores.records import Message
from .. import devices
from .engine import EngineError, UnloadableError

BOS = "{{ bos_token }}"
INPUT = "\n\n### Input:\n"
"""The heading between an instruction and its input."""
ALPACA = (
    "{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{{ 'Below is an instruction that describes a task' }}"
    "{{ ', paired with an input that provides further context. ' "
    "if asked and '" + INPUT.replace("\n", "\\n") + "' in asked[0]['content'] else '. ' }}"
    "{{ 'Write a response that appropriately completes the request.\\n\\n' }}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '### Instruction:\\n' + message['content'] + '\\n\\n### Response:' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}{% endif %}{% endfor %}"
)
SHIPPED = {"alpaca": ALPACA}

GIVEN = frozenset({"messages", "add_generation_prompt", "tools", "documents"})
"""The variables that transformers passes to each template, in addition to the special tokens."""
LONGEST_REASON = 300
"""Characters of a template's error message that are repeated."""

SPECIAL_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Special tokens that a tokenizer's class may name although its files do not."""
GENERIC_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Classes of tokenizers that have only the special tokens of their files."""

SYSTEM, USER, ANSWER = "system", "user", "assistant"
PROBE_QUESTION = Message(role=USER, content="probe-of-user")
PROBE_ANSWER = Message(role=ANSWER, content="probe-of-answer")
SHAPES = (
    (USER,),
    (SYSTEM, USER),
    (USER, ANSWER),
    (USER, ANSWER, USER, ANSWER, USER),
    (SYSTEM, USER, ANSWER, USER, ANSWER, USER),
)
"""The roles of the conversations that a template must render without loss."""
ADVICE = (
    "; name a template that renders each turn, whose content is a text and no list of parts, by "
    "engine.template=FILE.jinja (for the policy `--set policy.engine.template=FILE.jinja`)"
)


class TemplateFaultError(UnloadableError):
    """A chat template that cannot be parsed, raises an error, or leaves out a text."""

    code = "LPF-303"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A chat template and the variables that it reads.

    `name` is its name in errors. `tokens` are the tokenizer's special tokens by name
    (`bos_token`), `values` the variables in `engine.chat_template_kwargs`.
    """

    name: str
    text: str
    tokens: Mapping[str, str]
    values: Mapping[str, object]

    def render(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        """Return the text of a conversation; a `prompt` ends at the beginning of the model's turn.

        Raises:
            TemplateFaultError: with the template's own error message.
        """
        from transformers.utils.chat_template_utils import render_jinja_template

        turns = [{"role": message.role, "content": message.content} for message in messages]
        given: dict[str, Any] = {**self.tokens, **self.values}
        try:
            texts, _ = render_jinja_template(
                [turns], chat_template=self.text, add_generation_prompt=prompt, **given
            )
        except Exception as error:
            # A template is a program of its author: it can raise anything.
            raise TemplateFaultError(f"{self.name}{_reason(error)}") from error
        return texts[0]

    def after_answer(self, *later: Message) -> str | None:
        """Return the template's text after an answer; None if it cannot render one."""
        try:
            text = self.render((PROBE_QUESTION, PROBE_ANSWER, *later), prompt=False)
        except TemplateFaultError:
            return None
        _, found, after = text.rpartition(PROBE_ANSWER.content)
        return after if found else None

    def has_no_system(self) -> bool:
        """Whether the template takes a user turn, but refuses a system turn or loses its text."""
        system = Message(role=SYSTEM, content="probe-of-system")
        try:
            self.render((PROBE_QUESTION,))
        except TemplateFaultError:
            return False
        try:
            return system.content not in self.render((system, PROBE_QUESTION))
        except TemplateFaultError:
            return True

    def variables(self) -> set[str]:
        """Return the variables that a caller can set.

        Raises:
            TemplateFaultError: if the template cannot be parsed.
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


def load_tokenizer(folder: Path | str, template: str | None = None) -> Any:
    """Load a folder's tokenizer, without network or code from the folder.

    The text of a `template` replaces its own. A shipped template begins prompts with the tokens
    that the tokenizer puts before every text.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    if template is not None:
        begin = _beginning(tokenizer) if template in SHIPPED.values() else ""
        tokenizer.chat_template = begin + template
    elif isinstance(tokenizer.chat_template, dict):
        tokenizer.chat_template = _default(tokenizer.chat_template)
    return tokenizer


def tokenizer_template(tokenizer: Any, values: Mapping[str, object] | None = None) -> ChatTemplate:
    """Return the chat template that a loaded tokenizer has now."""
    return ChatTemplate(
        name=f"the chat template of {tokenizer.name_or_path}",
        text=tokenizer.chat_template,
        tokens=tokenizer.special_tokens_map,
        values=values or {},
    )


def folder_template(folder: Path, config: EngineConfig) -> ChatTemplate | None:
    """Return the template in `engine.template`, or in the model's folder, if either has one.

    No tokenizer is loaded: special tokens that the folder's files do not name are empty.

    Raises:
        EngineError: if a file cannot be read.
    """
    settings = _tokenizer_settings(folder)
    name, text = f"engine.template={config.template}", template_text(config.template)
    if text is None:
        name, text = f"the chat template of {folder}", _folder_text(folder, settings)
    if text is None:
        return None
    return ChatTemplate(
        name=name, text=text, tokens=_special_tokens(settings), values=config.chat_template_kwargs
    )


def template_text(name: str | None) -> str | None:
    """Return the text of the template that a setting names; None without a name.

    Raises:
        EngineError: if it is neither shipped nor a readable file.
    """
    if name is None or name in SHIPPED:
        return None if name is None else SHIPPED[name]
    path = Path(name).expanduser()
    if not path.is_file():
        raise EngineError(
            f"engine.template={name}: neither a file nor the name of a shipped template "
            f"({', '.join(SHIPPED)})"
        )
    return _read(path)


def template_digest(name: str | None) -> str | None:
    """Return the hash of a named template's text; None without a name."""
    text = template_text(name)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def require_chat(folder: Path, config: EngineConfig) -> None:
    """Refuse a model whose chat template is missing or cannot be used; the model is not loaded.

    Without transformers no template can be rendered; then it only has to exist.

    Raises:
        EngineError: naming the template and its fault.
    """
    template = folder_template(folder, config)
    if template is None:
        raise EngineError(
            f"{folder}: the tokenizer lacks a chat template, as with base models; name one: "
            "engine.template=alpaca (the Stanford Alpaca prompt), or a .jinja file (for the "
            "policy `--set policy.engine.template=alpaca`)"
        )
    if devices.installed_version("transformers"):
        require_values(template, config.chat_template_kwargs)
        require_turns(template)


def require_values(template: ChatTemplate, values: Mapping[str, Scalar]) -> None:
    """Refuse values that a chat template does not read.

    Raises:
        EngineError: naming the first of them, and the variables that the template reads.
    """
    read = template.variables() if values else set[str]()
    for name in values:
        if name not in read:
            known = f"it reads {', '.join(sorted(read))}" if read else "it reads none"
            raise EngineError(
                f"engine.chat_template_kwargs: {template.name} does not use {name}; {known}"
            )


def require_turns(template: ChatTemplate) -> None:
    """Refuse a template that cannot render a question, or loses the text of a turn.

    A longer conversation may raise an error: then only the requests that have one fail.

    Raises:
        TemplateFaultError: naming the template, and its error or the lost text.
    """
    try:
        template.render(_probes((USER,)))
    except TemplateFaultError as error:
        raise TemplateFaultError(f"{error}{ADVICE}") from error
    folds = template.has_no_system()
    for roles in SHAPES:
        turns = _probes(roles)
        try:
            text = template.render(
                fold_system_turn(turns) if folds else turns, prompt=roles[-1] == USER
            )
        except TemplateFaultError:
            continue
        lost = next((n for n, turn in enumerate(turns) if not _holds(text, turn)), None)
        if lost is not None:
            lost_turn = f"the {roles[lost]}'s text (turn {lost + 1} of {', '.join(roles)})"
            raise TemplateFaultError(f"{template.name} leaves out {lost_turn}{ADVICE}")


def folds_system(folder: Path, config: EngineConfig) -> bool:
    """Return whether the system turn becomes part of the user's for the model in a folder.

    Raises:
        EngineError: if its template cannot be read.
    """
    template = folder_template(folder, config)
    here = devices.installed_version("transformers")
    return template is not None and bool(here) and template.has_no_system()


def fold_system_turn(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a conversation whose leading system turn is the beginning of the user's turn."""
    if [message.role for message in messages[:2]] != [SYSTEM, USER]:
        return messages
    system, user, *others = messages
    return (Message(role=USER, content=f"{system.content}\n\n{user.content}"), *others)


def _probes(roles: tuple[str, ...]) -> tuple[Message, ...]:
    """Return a conversation whose turns have two lines, each found nowhere else."""
    return tuple(
        Message(role=role, content=f"probe-{place}-begins\nprobe-{place}-ends")
        for place, role in enumerate(roles)
    )


def _holds(text: str, message: Message) -> bool:
    return all(line in text for line in message.content.splitlines())


def _reason(error: Exception) -> str:
    """Return a template's error on one line."""
    from jinja2 import TemplateError, TemplateSyntaxError

    reason = " ".join(str(error).split())[:LONGEST_REASON]
    if isinstance(error, TemplateSyntaxError):
        return f": line {error.lineno}: {reason}"
    # jinja2's plain TemplateError is the template's own `raise_exception`.
    own = type(error) is TemplateError
    return f' raised "{reason}"' if own else f" raised {type(error).__name__}: {reason}"


def _beginning(tokenizer: Any) -> str:
    """Return the text that gives a prompt the tokens that the tokenizer puts before every text.

    A tokenizer of SentencePiece puts a space before a text, but not after a special token.
    """
    word, bos = "Below", tokenizer.bos_token
    expected = tokenizer(word).input_ids
    for written, text in ((BOS, f"{bos}{word}"), (f"{BOS} ", f"{bos} {word}")) if bos else ():
        if tokenizer(text, add_special_tokens=False).input_ids == expected:
            return written
    return ""


def _default(templates: Mapping[str, str]) -> str | None:
    """Return the template for conversations without tools, of a model that has several by name."""
    return templates.get("default", next(iter(templates.values()), None))


def _folder_text(folder: Path, settings: Mapping[str, Any]) -> str | None:
    own = folder / "chat_template.jinja"
    if own.is_file():
        return _read(own)
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = _default({one["name"]: one["template"] for one in found})
    return found or None


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer's files name, by their names in templates."""
    named: dict[str, Any] = {}
    if settings.get("tokenizer_class") not in GENERIC_CLASSES:
        named = {f"{kind}_token": "" for kind in SPECIAL_TOKENS}
    named |= {name: token for name, token in settings.items() if name.endswith("_token")}
    extra = settings.get("extra_special_tokens")
    named |= extra if isinstance(extra, dict) else {}
    texts = {name: one["content"] if isinstance(one, dict) else one for name, one in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            found: Any = json.loads(path.read_bytes())
        except ValueError as error:
            raise EngineError(f"{path}: not valid JSON ({error})") from error
        if not isinstance(found, dict):
            raise EngineError(f"{path}: not a JSON object")
        settings |= found
    return settings


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise EngineError(f"{path}: not UTF-8 ({error})") from error
