# pyright: basic
"""The tokenizer of a folder, with the template by which a conversation becomes a prompt.

A model that was trained to chat brings its own. A base model has none: `engine.template` names a
shipped one, or a file.

`alpaca` is the prompt of Stanford Alpaca (tatsu-lab/stanford_alpaca, Apache-2.0), whose two forms
are told apart by the heading of the input in what the user says.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...configs.engines import EngineConfig
from .chat_rendering import ChatTemplate
from .engine import EngineError

BOS = "{{ bos_token }}"
INPUT = "\n\n### Input:\n"
"""What stands between an instruction and its input."""
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
TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Special tokens that a tokenizer's class may name although its files do not."""
GENERIC = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""The classes of tokenizers that have only the special tokens of their files."""


def load_tokenizer(folder: Path | str, template: str | None = None) -> Any:
    """Load a folder's tokenizer, without network or code of its own, with a template if given."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    if template is not None:
        set_template(tokenizer, template)
    elif isinstance(tokenizer.chat_template, dict):
        tokenizer.chat_template = _plain(tokenizer.chat_template)
    return tokenizer


def set_template(tokenizer: Any, template: str) -> None:
    """Let a tokenizer write prompts by the text of a template, in place of its own.

    A shipped template begins as the tokenizer begins every text.
    """
    if template in SHIPPED.values():
        template = _beginning(tokenizer) + template
    tokenizer.chat_template = template


def _beginning(tokenizer: Any) -> str:
    """Return what before a prompt gives the tokens that the tokenizer alone would begin it with.

    SentencePiece's put a space before a text, but not where a special token stands before it.
    """
    word, bos = "Below", tokenizer.bos_token
    meant = tokenizer(word).input_ids
    for before in (BOS, f"{BOS} ") if bos else ():
        text = before.replace(BOS, bos) + word
        if tokenizer(text, add_special_tokens=False).input_ids == meant:
            return before
    return ""


def template_text(name: str | None) -> str | None:
    """Return the text of the template that a setting names; None where it names none.

    Raises:
        EngineError: if it is neither shipped nor a readable file of a template.
    """
    if name is None or name in SHIPPED:
        return None if name is None else SHIPPED[name]
    path = Path(name).expanduser()
    if not path.is_file():
        shipped = ", ".join(SHIPPED)
        raise EngineError(
            f"engine.template={name}: there is no such file, nor a shipped template of this name "
            f"({shipped})"
        )
    return _read(path)


def folder_template(folder: Path, config: EngineConfig) -> ChatTemplate | None:
    """Return the chat template by which an engine writes the prompts of the model in a folder.

    It is the one that `engine.template` names, or the folder's own; None if there is neither. No
    tokenizer is loaded: special tokens that its files do not name are empty.

    Raises:
        EngineError: if a file of it cannot be read.
    """
    named, settings = template_text(config.template), _tokenizer_settings(folder)
    text = _own_template(folder, settings) if named is None else named
    if text is None:
        return None
    return ChatTemplate(
        name=f"the chat template of {folder}"
        if named is None
        else f"engine.template={config.template}",
        text=text,
        tokens=_special_tokens(settings),
        values=config.chat_template_kwargs,
    )


def _own_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the chat template of a model's folder, the one without tools if it has several."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return _read(own)
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = _plain({one["name"]: one["template"] for one in found})
    return found or None


def _plain(templates: Mapping[str, str]) -> str | None:
    """Return the template that renders conversations without tools, of several by name."""
    return templates.get("default", next(iter(templates.values()), None))


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer's files name, by their names in templates."""
    named: dict[str, Any] = {}
    if settings.get("tokenizer_class") not in GENERIC:
        named = dict.fromkeys(TOKENS, "")
    named |= {name: token for name, token in settings.items() if name.endswith("_token")}
    extra = settings.get("extra_special_tokens")
    named |= extra if isinstance(extra, dict) else {}
    texts = {name: one["content"] if isinstance(one, dict) else one for name, one in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    """Return what a folder's files say of its tokenizer."""
    told: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            told |= _object(path)
    return told


def _object(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise EngineError(f"{path}: not a JSON object")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise EngineError(f"{path}: not UTF-8 ({error})") from error


def template_digest(name: str | None) -> str | None:
    """Return the hash of a named template's text; None where none is named."""
    text = template_text(name)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def require_template(folder: Path, name: str | None) -> None:
    """Refuse a model that has no chat template, and none named for it; nothing is loaded.

    Raises:
        EngineError: naming the setting.
    """
    if folder_template(folder, EngineConfig(template=name)) is None:
        raise EngineError(
            f"{folder}: the tokenizer has no chat template, as those of base models; name one: "
            "engine.template=alpaca (the Stanford Alpaca prompt), or a .jinja file (for the policy "
            "`--set policy.engine.template=alpaca`)"
        )
