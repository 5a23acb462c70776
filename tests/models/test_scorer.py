"""The reward scorer returns the classifier's scalar, regardless of the other texts in the batch."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.engine import (
    EngineError,
    ScoreBatch,
    Scorer,
    ScoreRequest,
    ScoreResult,
)
from lpfloop.policies.engines.scorers import RewardScorer
from lpfloop.policies.workers.engine_factory import open_scorer
from lpfloop.stores.records import Message

ANSWERS = ("Yes.", "7 - 2 = 5. 5 + 1 = 6. The answer is 6.", "No, he has 12 apples.", "Gladly!")
MAX_LENGTH = 96

pytestmark = pytest.mark.model


def conversation(answer: str) -> tuple[Message, ...]:
    question = Message(role="user", content="Tom has 3 apples and buys 4 more. How many?")
    return (question, Message(role="assistant", content=answer))


def batch(key: str, answers: tuple[str, ...] = ANSWERS) -> ScoreBatch:
    requests = (ScoreRequest(request_id=a, messages=conversation(a)) for a in answers)
    return ScoreBatch(key=key, requests=tuple(requests))


def score(scorer: Scorer, *batches: ScoreBatch) -> dict[str, ScoreResult]:
    return {result.key: result for result in scorer.score(batches)}


@pytest.fixture(scope="module")
def scorer(tiny_reward: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    config = RewardConfig(batch_size=2, max_length=MAX_LENGTH)
    scorer = open_scorer(tiny_reward, config, log=tmp_path_factory.mktemp("log") / "reward.log")
    yield scorer
    scorer.close()


def test_scores_equal_model_output(scorer: Scorer, tiny_reward: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(
        str(tiny_reward), dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_reward))
    expected: list[float] = []
    for answer in ANSWERS:
        turns = [{"role": m.role, "content": m.content} for m in conversation(answer)]
        ids = tokenizer.apply_chat_template(turns, return_dict=False, return_tensors="pt")
        with torch.no_grad():
            expected.append(model(input_ids=ids).logits[0, 0].item())
    assert score(scorer, batch("a"))["a"].answers == pytest.approx(expected, abs=1e-4)
    assert len(set(expected)) > 1


def test_scores_do_not_depend_on_others(scorer: Scorer) -> None:
    alone = score(scorer, batch("a"))["a"]
    among = score(scorer, batch("b", ANSWERS[::-1] * 9), batch("a"), batch("c", ANSWERS[:1]))
    assert among["a"] == alone
    assert among["c"].answers == pytest.approx(alone.answers[:1], abs=1e-4)
    assert len(among["b"].answers) == 36


def as_cut(whole: ScoreBatch) -> ScoreBatch:
    requests = tuple(replace(request, ended=False) for request in whole.requests)
    return replace(whole, requests=requests)


def test_cut_answer_lacks_end_token(scorer, tiny_reward, tmp_path) -> None:
    whole = score(scorer, batch("a"))["a"].answers
    cut = score(scorer, as_cut(batch("a")))["a"].answers
    assert all(a != b for a, b in zip(whole, cut, strict=True))
    blind = RewardConfig(batch_size=2, max_length=MAX_LENGTH, sees_end=False)
    other = open_scorer(tiny_reward, blind, log=tmp_path / "reward.log")
    for asked in (batch("a"), as_cut(batch("a"))):
        assert score(other, asked)["a"].answers == pytest.approx(cut, abs=1e-5)
    other.close()


def test_a_template_without_an_end_is_refused(tiny_reward, tmp_path) -> None:
    shutil.copytree(tiny_reward, tmp_path / "endless")
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = tmp_path / "endless" / name
        if path.exists():
            told = json.loads(path.read_text())
            path.write_text(json.dumps({**told, "eos_token": None, "eos_token_id": None}))
    refused = r"reward\.sees_end"
    with pytest.raises(EngineError, match=refused):
        RewardScorer(tmp_path / "endless", RewardConfig())
    RewardScorer(tmp_path / "endless", RewardConfig(sees_end=False)).close()


def test_overlong_answer_unscored(scorer: Scorer) -> None:
    result = score(scorer, batch("a", (ANSWERS[0], "apples and pears " * MAX_LENGTH, ANSWERS[1])))
    first, none, last = result["a"].answers
    assert none is None
    assert [first, last] == pytest.approx(score(scorer, batch("a"))["a"].answers[:2], abs=1e-4)


def test_policy_refused_as_reward_model(tiny_reward: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    shutil.copytree(tiny_reward, folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "good", "1": "bad"}
    config["label2id"] = {"good": 0, "bad": 1}
    (folder / "config.json").write_text(json.dumps(config))
    scorer = open_scorer(folder, RewardConfig(), log=tmp_path / "log")
    with pytest.raises(EngineError):
        score(scorer, batch("a"))
    scorer.close()
    with pytest.raises(EngineError, match="no such model folder"):
        open_scorer(tmp_path / "none", RewardConfig(), log=tmp_path / "log")


MIXED = tuple(f"{'7 - 2 = 5. ' * (n * 5 % 7)}The answer is {n}." for n in range(30))


def test_passes_bounded_by_tokens(tiny_reward: Path) -> None:
    config = RewardConfig(batch_size=4, max_length=MAX_LENGTH)
    batches = batch("a", MIXED), batch("b", MIXED[:3]), as_cut(batch("cut", MIXED[:3]))
    packed = score(RewardScorer(tiny_reward, config, packs=True), *batches)
    for key, result in score(RewardScorer(tiny_reward, config), *batches).items():
        assert packed[key].answers == pytest.approx(result.answers, abs=1e-5)
