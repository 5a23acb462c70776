"""How rows share forward passes, and the valid results of a user's reward function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import PROMPT

from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.engine import EngineError, ScoreBatch, ScoreRequest
from lpfloop.policies.engines.scorers import BatchedScorer, OwnScorer, by_rows, by_tokens
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Message

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(LENGTHS, st.integers(1, 9))
def test_by_rows_the_shortest_are_together(lengths, most) -> None:
    passes = list(by_rows(lengths, most))
    assert sorted(place for group in passes for place in group) == list(range(len(lengths)))
    assert all(len(group) == most for group in passes[:-1])
    read = [lengths[place] for group in passes for place in group]
    assert read == sorted(read)


@given(LENGTHS, st.integers(1, 200))
def test_by_tokens_a_pass_holds_what_fits(lengths, most) -> None:
    passes = list(by_tokens(lengths, most))
    assert sorted(place for group in passes for place in group) == list(range(len(lengths)))
    for group in passes:
        longest = max(lengths[place] for place in group)
        assert len(group) * longest <= most or len(group) == 1
    read = [lengths[place] for group in passes for place in group]
    assert read == sorted(read, reverse=True)


def batch(key: str, *lengths: int) -> ScoreBatch:
    """Return conversations of so many words."""
    requests = (
        ScoreRequest(request_id=f"{key}/{i}", messages=(Message(role="user", content="w " * n),))
        for i, n in enumerate(lengths)
    )
    return ScoreBatch(key=key, requests=tuple(requests))


class Counted(BatchedScorer[range]):
    """Scores a row by its length, and records the lengths of each pass."""

    def __init__(self, *, ahead: int) -> None:
        self.ahead = ahead
        self.read: list[list[int]] = []

    def rows(self, request) -> list[range]:
        words = len(request.messages[0].content.split())
        return [range(words)] if words <= 10 else []

    def passes(self, lengths):
        return by_tokens(lengths, 12)

    def forward(self, rows) -> list[float]:
        self.read.append([len(row) for row in rows])
        return [float(len(row)) for row in rows]


def test_rows_of_several_batches_share_passes() -> None:
    counted = Counted(ahead=1000)
    asked = [batch("a", 2, 9, 3), batch("b", 2, 11), batch("c"), batch("d", 6, 6)]
    results = list(counted.score(asked))
    assert counted.read == [[9], [6, 6], [3, 2, 2]]
    assert {result.key: result.answers for result in results} == {
        "a": (2.0, 9.0, 3.0),
        "b": (2.0, None),
        "c": (),
        "d": (6.0, 6.0),
    }
    assert [result.key for result in results] == ["c", "d", "a", "b"]
    alone = Counted(ahead=0)
    results = list(alone.score([batch("a", 2, 3), batch("b", 3, 2)]))
    assert [result.key for result in results] == ["a", "b"]
    assert alone.read == [[3, 2], [3, 2]]


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
    return result.answers


def test_non_score_values(tmp_path, subtests):
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
