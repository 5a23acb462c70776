# pyright: basic
"""The tokens that end a turn, and templates that write none of them after a finished one.

GLM-4 begins a turn with its role and ends none: the model generates `<|user|>`, which begins the
next. Trained as its template renders it, it would learn no end at all. So a template that ends no
answer is extended: after a conversation's last answer comes the token that the model ends with.
"""

import json
from pathlib import Path
from typing import Any

from ...stores.records import Message
from .chat_rendering import TemplateFaultError, tokenizer_template

ASKED = Message(role="user", content="probe-of-user")
SAID = Message(role="assistant", content="probe-of-answer")
ENDING = (
    "{%% if messages and messages[-1]['role'] == 'assistant' and not add_generation_prompt %%}"
    "{{ %s }}{%% endif %%}"
)


def stop_token_ids(folder: Path) -> tuple[int, ...]:
    """Return the end tokens that the model's configuration files name, sorted.

    `generation_config.json` is read for this alone: some families (Gemma) name their end-of-turn
    token only there. Its sampling fields are never used.
    """
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        value: Any = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        if value is not None:
            found.update(value if isinstance(value, list) else [int(value)])
    return tuple(sorted(found))


def turn_ends(tokenizer: Any, folder: Path) -> tuple[int, ...]:
    """Return the tokens that end a turn: those of the model's files and the tokenizer's own."""
    own = tokenizer.eos_token_id
    named = set(stop_token_ids(folder)) | (set[int]() if own is None else {int(own)})
    return tuple(sorted(named))


def end_turns(tokenizer: Any, folder: Path) -> None:
    """Let a tokenizer's template end the last answer, if it writes no end token after it."""
    ends = tokenizer.convert_ids_to_tokens(list(turn_ends(tokenizer, folder)))
    written = after_answer(tokenizer)
    if not ends or written is None or any(end in written for end in ends):
        return
    # What begins the next turn is what the model ends with, if it is one of its end tokens.
    following = (after_answer(tokenizer, ASKED) or "").removeprefix(written).lstrip()
    begun = [end for end in ends if following.startswith(end)]
    end = begun[0] if begun else (tokenizer.eos_token or ends[0])
    # Jinja drops the line feed at a template's end, which is none any more.
    whole = tokenizer.chat_template.removesuffix("\n")
    tokenizer.chat_template = whole + ENDING % json.dumps(end, ensure_ascii=False)


def after_answer(tokenizer: Any, *later: Message) -> str | None:
    """Return what a template writes after an answer; None if it does not render it."""
    try:
        text = tokenizer_template(tokenizer).render((ASKED, SAID, *later), prompt=False)
    except TemplateFaultError:
        return None
    _, found, after = text.rpartition(SAID.content)
    return after if found else None
