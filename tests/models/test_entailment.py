"""Natural language inference: whether a text entails a statement, in windows for long texts."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.engine import EngineError, ScoreBatch, ScoreRequest
from lpfloop.policies.engines.entailment import EntailmentScorer, entailment_label
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

WORDS = [f"w{number}" for number in range(40)]
LABELS = {0: "CONTRADICTION", 1: "neutral", 2: "Entailment"}
LONGEST = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small classifier with random weights, whose label of entailment is not the first."""
    path = tmp_path_factory.mktemp("nli")
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {word: number for number, word in enumerate((*special, *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", model_max_length=LONGEST, **names
    ).save_pretrained(path)
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
        initializer_range=0.5,
        id2label=LABELS,
        label2id={name: number for number, name in LABELS.items()},
    )
    BertForSequenceClassification(config).save_pretrained(path)
    return path


def pair(premise: str, statement: str) -> ScoreRequest:
    messages = (
        Message(role="user", content=premise),
        Message(role="assistant", content=statement),
    )
    return ScoreRequest(request_id=f"{premise[:20]} {statement[:20]}", messages=messages)


def margins(scorer, *pairs: tuple[str, str]) -> tuple[float | None, ...]:
    batch = ScoreBatch(key="b", requests=tuple(pair(*texts) for texts in pairs))
    (result,) = scorer.score([batch])
    return result.answers


SETTINGS = RewardConfig(model="nli", batch_size=2, max_length=512)
PAIRS = [(" ".join(WORDS[n : n + 5]), " ".join(WORDS[n + 2 : n + 4])) for n in range(0, 30, 5)]


def test_the_margin_of_the_label(folder):
    scorer = EntailmentScorer(folder, SETTINGS)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    for texts, margin in zip(PAIRS, margins(scorer, *PAIRS), strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(*texts, return_tensors="pt")).logits[0].tolist()
        assert margin == pytest.approx(logits[2] - max(logits[:2]), abs=1e-4)


@pytest.mark.usefixtures("one_thread")
def test_windows_of_a_long_text(folder):
    scorer = EntailmentScorer(folder, SETTINGS)
    long = " ".join(WORDS * 4)
    windows = scorer.rows(pair(long, "w3 w4"))
    assert len(windows) > 2
    assert all(len(window["input_ids"]) <= LONGEST for window in windows)
    read = {token for window in windows for token in window["input_ids"]}
    assert len(read) >= len(WORDS)
    assert margins(scorer, (long, "w3 w4")) == (
        pytest.approx(max(scorer.forward(windows)), abs=1e-4),
    )


def test_a_statement_as_long_as_a_window(folder):
    scorer = EntailmentScorer(folder, SETTINGS)
    endless = " ".join(WORDS)
    assert margins(scorer, ("w1", endless), PAIRS[0])[0] is None


def test_another_classifier_is_refused(folder, tmp_path):
    assert entailment_label(folder) == 2
    config = json.loads((folder / "config.json").read_text())
    for labels in ({"0": "LABEL_0", "1": "LABEL_1"}, {"0": "entailment"}, {}):
        (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": labels}))
        with pytest.raises(EngineError, match="entailment"):
            entailment_label(tmp_path)
