"""How many tokens texts are, where the engine that counts them is not asked: at most, and about.

A budget is held by what a request costs at most, and planned by what it costs about. An endpoint
that reports no usage is settled by the count of the model's own tokenizer if its folder is at hand,
else by the length of the texts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...stores.keys import Json
from ...stores.records import Message

BYTES_A_TOKEN = 3
"""English prose has 4 to 5 bytes a token, code about 3, Chinese 3 to 4: rather too many tokens."""

TURN_TOKENS = 16
"""Tokens that a chat template may put around one message."""

OPENING_TOKENS = 128
"""Tokens that a chat template may put before all messages: a system prompt of its own, the date."""

TokenCount = Callable[[str], int]


def most_tokens(messages: Sequence[Message]) -> int:
    """Return how many tokens a conversation is at most: a byte is at most one token."""
    return OPENING_TOKENS + sum(len(m.content.encode()) + TURN_TOKENS for m in messages)


def schema_tokens(schema: Mapping[str, Json] | None) -> int:
    """Return how many tokens a reply's schema is at most: some models read it with the prompt."""
    return 0 if schema is None else len(json.dumps(schema).encode()) + TURN_TOKENS


def about(text: str) -> int:
    """Return about how many tokens a text is, by its length: rather too many than too few."""
    return math.ceil(len(text.encode()) / BYTES_A_TOKEN)


def counted(messages: Sequence[Message], count: TokenCount = about) -> int:
    """Return about how many tokens a conversation is."""
    return sum(count(m.content) + TURN_TOKENS for m in messages)


def token_count(model: str) -> TokenCount:
    """Return the count of a model's own tokenizer, if `model` is a folder that holds it."""
    path = Path(model) / "tokenizer.json"
    if not path.is_file():
        return about
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return about
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
