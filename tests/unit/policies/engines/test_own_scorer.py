"""What a user's own reward function returns: a score for each text, or nothing that becomes one."""

import pytest
from rows import PROMPT

from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.engine import EngineError, ScoreBatch, ScoreRequest
from lpfloop.policies.engines.own_scorer import OwnScorer
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Message

REFUSED = (
    "[float('nan')] * len(two)",
    "[1.0]",
    "['1'] * len(two)",
    "[True] * len(two)",
    "None",
    "(1 / 0 for _ in two)",
)


def function_of(folder, body):
    (folder / "mine.py").write_text(f"def mine(one, two):\n    return {body}\n")
    return f"{folder / 'mine.py'}:mine"


def scored(place):
    """Score three texts, two at a time."""
    messages = (*PROMPT.messages, Message(role="assistant", content="Hello."))
    requests = tuple(
        ScoreRequest(request_id=str(number), messages=messages, prompt=PROMPT)
        for number in range(3)
    )
    scorer = OwnScorer(place, RewardConfig(batch_size=2), scorer_digest(place))
    (result,) = scorer.score([ScoreBatch(key="k", requests=requests)])
    return result.scores


def test_values_that_are_no_scores(tmp_path, subtests):
    for value in REFUSED:
        with subtests.test(value=value), pytest.raises(EngineError, match="mine"):
            scored(function_of(tmp_path, value))


def test_scores_in_batches(tmp_path):
    for value in ("[1, 2.5][: len(two)]", "__import__('numpy').array([1, 2.5])[: len(two)]"):
        assert scored(function_of(tmp_path, value)) == (1.0, 2.5, 1.0)


def test_changed_file_is_refused(tmp_path):
    place = function_of(tmp_path, "[1.0] * len(two)")
    began = scorer_digest(place)
    function_of(tmp_path, "[2.0] * len(two)")
    with pytest.raises(EngineError, match="has changed"):
        OwnScorer(place, RewardConfig(), began)
