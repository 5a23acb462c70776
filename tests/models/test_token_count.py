"""Tokens of a text by a model's own tokenizer."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from lpfloop.policies.engines.token_count import BYTES_A_TOKEN, token_count

pytestmark = pytest.mark.model


def test_own_tokenizer(tiny_policy: Path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    own = len(tokenizer.encode("yes, of course", add_special_tokens=False))
    assert own != -(-len("yes, of course") // BYTES_A_TOKEN)
    assert token_count(str(tiny_policy))("yes, of course") == own
