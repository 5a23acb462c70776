"""The number of tokens of texts without asking an engine: an upper bound, and an estimate.

A budget reserves the upper bound of a request, and a plan adds up estimates. If an endpoint reports
no usage, lpfloop counts with the model's own tokenizer if its folder is available, or else
estimates from the length of the texts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...stores.keys import Json
from ...stores.records import Message

BYTES_A_TOKEN = 3
"""English prose has 4 to 5 bytes a token, code about 3, Chinese 3 to 4; 3 rather overestimates."""

TURN_TOKENS = 16
"""Tokens that a chat template may put around one message."""

OPENING_TOKENS = 128
"""Tokens that a chat template may put before all messages: a default system prompt, the date."""

TokenCount = Callable[[str], int]


def most_tokens(messages: Sequence[Message]) -> int:
    """Return the most tokens that a conversation can have: one for each byte."""
    return OPENING_TOKENS + sum(len(m.content.encode()) + TURN_TOKENS for m in messages)


def schema_tokens(schema: Mapping[str, Json] | None) -> int:
    """Return the most tokens of a reply's schema, which some models read with the prompt."""
    return 0 if schema is None else len(json.dumps(schema).encode()) + TURN_TOKENS


def about(text: str) -> int:
    """Estimate the tokens of a text from its length, too many rather than too few."""
    return math.ceil(len(text.encode()) / BYTES_A_TOKEN)


def estimate_tokens(messages: Sequence[Message], count: TokenCount = about) -> int:
    """Estimate the tokens of a conversation."""
    return sum(count(m.content) + TURN_TOKENS for m in messages)


def token_count(model: str) -> TokenCount:
    """Return a count by a model's own tokenizer if `model` is a folder with it, or else `about`."""
    path = Path(model) / "tokenizer.json"
    if not path.is_file():
        return about
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return about
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
