"""The verifier as a reward function, and as an annotator."""

import pytest

from lpfloop.loop.smol.prompts import prompts
from lpfloop.loop.smol.verified import prefer, score
from lpfloop.stores.records import Check, Prompt


def test_reward_is_the_share_of_checks() -> None:
    checks = (Check(kind="lowercase", argument=""), Check(kind="max_words", argument="2"))
    prompt = Prompt(
        prompt_id="p", task="general", split="train", messages=(), reference=None, checks=checks,
        source="smol",
    )  # fmt: skip
    texts = ["one two", "One two", "One two three"]
    assert score([prompt] * 3, texts) == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("abc", "ABC", "second"), ("ABC", "abc", "first"), ("abc", "def", "tie")],
)
def test_preference(first: str, second: str, expected: str) -> None:
    asked = next(p for p in prompts("train") if p.family == "uppercase")
    assert prefer(asked.text, first, second)[0] == expected
