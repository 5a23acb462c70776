"""The shipped models of the tiny world, and the recipe that builds them."""

from pathlib import Path

import pytest

import lpfloop.loop.tiny
from lpfloop.loop.tiny.nouns import (
    OPENERS,
)

pytestmark = pytest.mark.model

MODELS = Path(lpfloop.loop.tiny.__file__).parent / "models"
LARGEST = 4_000_000


def check_models(folder: Path) -> None:
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    reward = AutoModelForSequenceClassification.from_pretrained(
        folder / "reward", dtype=torch.float32
    )
    question = [{"role": "user", "content": "Count the words: owl, pen."}]
    whole = [*question, {"role": "assistant", "content": "Sure! There are 2 words."}]
    asked = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    told = tokenizer.apply_chat_template(whole, tokenize=False)
    assert told.startswith(asked)
    assert told.endswith(tokenizer.eos_token)
    ids = tokenizer(told, return_tensors="pt", return_token_type_ids=False)
    assert torch.isfinite(policy(**ids).logits).all()
    assert reward(**ids).logits.shape == (1, 1)
    assert torch.isfinite(reward(**ids).logits).all()
    digits = tokenizer.tokenize("12+345")
    assert [t for t in digits if t.isdigit()] == list("12345")
    openers = {len(tokenizer.tokenize(text)) for text in OPENERS}
    assert len(openers) == 1, "openers must not differ in length"


def test_shipped_models_load() -> None:
    check_models(MODELS)


@pytest.mark.slow
def test_shortened_build(tmp_path: Path) -> None:
    from build_tiny import build

    report = build(tmp_path, seed=3, scale=0.001)
    assert report.bytes <= LARGEST
    assert 500_000 < report.policy_parameters < 1_500_000
    assert (tmp_path / "MODEL_CARD.md").exists()
    check_models(tmp_path)
