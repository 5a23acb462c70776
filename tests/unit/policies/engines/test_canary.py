"""The canary's rule: log-probabilities that prove the trained weights."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lpfloop.policies.engines.canary import (
    APART,
    CANARY,
    CanaryRow,
    StaleWeightsError,
    prove,
    read_canary,
    write_canary,
)
from lpfloop.policies.engines.engine import (
    AnswerLogprob,
    EngineError,
)
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.stores.records import Message


def row(before: float, after: float, tokens: int = 10) -> CanaryRow:
    return CanaryRow(
        messages=(Message(role="user", content="Who?"),),
        answer="Me.",
        logprob_before=before,
        logprob_after=after,
        tokens=tokens,
    )


@dataclass
class Measuring(ScriptedEngine):
    """An engine with given log-probabilities."""

    said: Sequence[float | None]
    tokens: int = 10

    def logprobs(self, conversations):
        assert len(conversations) == len(self.said)
        return [
            None if logprob is None else AnswerLogprob(logprob=logprob, tokens=self.tokens)
            for logprob in self.said
        ]


ROWS = [row(-20.0, -15.0), row(-30.0, -30.1), row(-9.0, -12.0)]


def test_the_trained_weights_pass() -> None:
    """None means that an answer does not fit into the engine's window."""
    for said in (
        [-15.0, -30.1, -12.0],
        [-15.1, -30.3, -11.9],
        [-15.0, None, -12.0],
        [None, None, None],
    ):
        prove(Measuring(said).logprobs, ROWS)


def test_other_weights_are_refused(subtests) -> None:
    for said in (
        [-20.0, -30.0, -9.0],  # the parent's weights
        [-15.0, -30.1, -9.0],  # one row of the parent's
        [-40.0, -60.0, -30.0],  # other weights
        [float("nan"), -30.1, -12.0],
        [float("-inf"), -30.1, -12.0],
    ):
        with subtests.test(said=said), pytest.raises(StaleWeightsError):
            prove(Measuring(said).logprobs, ROWS)


def test_a_training_that_moved_little() -> None:
    """Each row moved by less than a right engine's error, but all agree."""
    for step in (1e-3, 1e-2, 0.1):
        rows = [row(-20.0 - i, -20.0 - i + step * (-1) ** i) for i in range(8)]
        assert step / 10 < APART
        exact = 1e-5
        prove(Measuring([r.logprob_after + exact for r in rows]).logprobs, rows)
        with pytest.raises(StaleWeightsError):
            prove(Measuring([r.logprob_before + exact for r in rows]).logprobs, rows)


def test_noise_raises_no_alarm() -> None:
    """A right engine in half precision, after trainings that moved less than its noise."""
    numbers = random.Random(0)
    for _ in range(200):
        rows = [row(-20.0, -20.0 + numbers.gauss(0, 0.05)) for _ in range(8)]
        prove(Measuring([r.logprob_after + numbers.gauss(0, 0.05) for r in rows]).logprobs, rows)


def test_another_tokenizer_is_caught() -> None:
    with pytest.raises(StaleWeightsError, match="tokenizer"):
        prove(Measuring([-15.0, -30.1, -12.0], tokens=11).logprobs, ROWS)


def test_rows_are_read_as_written(tmp_path: Path) -> None:
    assert read_canary(tmp_path) == ()
    write_canary(tmp_path, ROWS)
    assert read_canary(tmp_path) == tuple(ROWS)


def test_a_broken_file_is_refused(tmp_path: Path, subtests) -> None:
    for content in ("", '{"a": 1}', "[{}]", "[1]", '[{"messages": [[1]]}]', "null"):
        (tmp_path / CANARY).write_text(content)
        with subtests.test(content=content), pytest.raises(EngineError, match=CANARY):
            read_canary(tmp_path)
