"""The transformers engine's sampling: an exact nucleus, and the right token for a random number."""

from dataclasses import replace

import pytest

pytestmark = pytest.mark.model

PROBABILITIES = (0.05, 0.5, 0.15, 0.3)


def picked(points: list[float], **how: float) -> list[int]:
    import torch

    from lpfloop.policies.engines.engine import Sampling
    from lpfloop.policies.engines.transformers_engine import pick

    logits = torch.tensor([PROBABILITIES]).log().repeat(len(points), 1)
    uniform = torch.tensor(points, dtype=torch.float64)
    whole = Sampling(temperature=1.0, top_p=1.0, max_tokens=1)
    return pick(logits, uniform, replace(whole, **how)).tolist()


def test_shares_of_unit_interval() -> None:
    assert picked([0.0, 0.04, 0.06, 0.54, 0.56, 0.69, 0.71, 0.999999]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_nucleus(subtests):
    for top_p, nucleus in [
        (1e-9, {1}),
        (0.49, {1}),
        (0.51, {1, 3}),
        (0.79, {1, 3}),
        (0.81, {1, 2, 3}),
        (1.0, {0, 1, 2, 3}),
    ]:
        with subtests.test(top_p=top_p, nucleus=nucleus):
            points = [i / 1000 for i in range(1000)] + [1 - 2**-53]
            assert set(picked(points, top_p=top_p)) == nucleus


def test_temperature() -> None:
    points = [i / 1000 for i in range(1000)]
    cold = picked(points, temperature=0.5)
    expected = PROBABILITIES[1] ** 2 / sum(p**2 for p in PROBABILITIES)
    assert cold.count(1) / 1000 == pytest.approx(expected, abs=2e-3)


def test_min_p_and_top_k(subtests):
    for how, left in [
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 3}),
        ({"min_p": 0.7}, {1}),
        ({"min_p": 0.2}, {1, 2, 3}),
        ({"min_p": 0.2, "temperature": 0.5}, {1, 3}),
        ({"top_k": 3, "top_p": 0.81}, {1, 3}),
    ]:
        with subtests.test(how=how, left=left):
            points = [i / 1000 for i in range(1000)] + [1 - 2**-53]
            assert set(picked(points, **how)) == left


def test_repetition_penalty() -> None:
    import torch

    from lpfloop.policies.engines.transformers_engine import penalise_repeats

    logits = torch.tensor([[2.0, -1.0, 3.0], [2.0, -1.0, 3.0]])
    moved = penalise_repeats(logits, [[0, 1, 0], [2]], 2.0)
    assert moved.tolist() == [[1.0, -2.0, 3.0], [2.0, -1.0, 1.5]]
