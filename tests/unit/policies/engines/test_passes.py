"""How rows share forward passes, and when a batch is whole."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.policies.engines.engine import ScoreBatch, ScoreRequest
from lpfloop.policies.engines.passes import by_rows, by_tokens
from lpfloop.policies.engines.scoring import ScoringPasses
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


class Counted:
    """Scores a row by its length, and keeps the lengths of each pass."""

    def __init__(self, *, ahead: int, most: int = 12) -> None:
        self.passes: list[list[int]] = []
        self.scoring = ScoringPasses(
            tokens=lambda request: range(len(request.messages[0].content.split())),
            longest=10,
            ahead=ahead,
            passes=lambda lengths: by_tokens(lengths, most),
            forward=self.forward,
        )

    def forward(self, rows) -> list[float]:
        self.passes.append([len(row) for row in rows])
        return [float(len(row)) for row in rows]


def test_rows_of_several_batches_share_passes() -> None:
    counted = Counted(ahead=1000)
    asked = [batch("a", 2, 9, 3), batch("b", 2, 11), batch("c"), batch("d", 6, 6)]
    results = list(counted.scoring.score(asked))
    assert counted.passes == [[9], [6, 6], [3, 2, 2]]
    assert {result.key: result.scores for result in results} == {
        "a": (2.0, 9.0, 3.0),
        "b": (2.0, None),
        "c": (),
        "d": (6.0, 6.0),
    }
    assert [result.key for result in results] == ["c", "d", "a", "b"]
    alone = Counted(ahead=0)
    results = list(alone.scoring.score([batch("a", 2, 3), batch("b", 3, 2)]))
    assert [result.key for result in results] == ["a", "b"]
    assert alone.passes == [[3, 2], [3, 2]]
