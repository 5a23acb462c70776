# pyright: basic
"""The tokenizer of a folder, with the template by which a conversation becomes a prompt.

A model that was trained to chat brings its own. A base model has none: `engine.template` names a
shipped one, or a file.

`alpaca` is the prompt of Stanford Alpaca (tatsu-lab/stanford_alpaca, Apache-2.0), whose two forms
are told apart by the heading of the input in what the user says.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

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
FILES = ("chat_template.jinja", "chat_template.json")


def load_tokenizer(folder: Path | str, template: str | None = None) -> Any:
    """Load a folder's tokenizer, without network or code of its own, with a template if given."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    if template is not None:
        set_template(tokenizer, template)
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


def _read(path: Path) -> str:
    from jinja2 import Environment, TemplateSyntaxError

    try:
        text = path.read_text("utf-8")
        # The extensions that transformers gives a template; it is parsed here, not run.
        Environment(autoescape=True, extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except UnicodeDecodeError as error:
        raise EngineError(f"engine.template={path}: not UTF-8 ({error})") from error
    except TemplateSyntaxError as error:
        raise EngineError(
            f"engine.template={path}: line {error.lineno}: {error.message}"
        ) from error
    return text


def template_digest(name: str | None) -> str | None:
    """Return the hash of a named template's text; None where none is named."""
    text = template_text(name)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def require_template(folder: Path, name: str | None) -> None:
    """Refuse a model that has no chat template, and none named for it; nothing is loaded.

    Raises:
        EngineError: naming the setting.
    """
    if template_text(name) is None and not _has_own(folder):
        raise EngineError(
            f"{folder}: the tokenizer has no chat template, as those of base models; name one: "
            "engine.template=alpaca (the Stanford Alpaca prompt), or a .jinja file (for the policy "
            "`--set policy.engine.template=alpaca`)"
        )


def _has_own(folder: Path) -> bool:
    config = folder / "tokenizer_config.json"
    if any((folder / name).is_file() for name in FILES) or not config.is_file():
        return any((folder / name).is_file() for name in FILES)
    try:
        told: Any = json.loads(config.read_bytes())
    except ValueError as error:
        raise EngineError(f"{config}: not valid JSON ({error})") from error
    return isinstance(told, dict) and bool(told.get("chat_template"))
