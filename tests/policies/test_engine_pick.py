"""The transformers engine's draw: an exact nucleus, and the right token for a number."""

import pytest

pytestmark = pytest.mark.model

PROBABILITIES = (0.05, 0.5, 0.15, 0.3)


def picked(points: list[float], *, temperature: float = 1.0, top_p: float = 1.0) -> list[int]:
    import torch

    from lpfloop.policies.engines.transformers_engine import pick

    logits = torch.tensor([PROBABILITIES]).log().repeat(len(points), 1)
    uniform = torch.tensor(points, dtype=torch.float64)
    return pick(logits, uniform, temperature, top_p).tolist()


def test_each_token_has_its_share_of_the_unit_interval() -> None:
    assert picked([0.0, 0.04, 0.06, 0.54, 0.56, 0.69, 0.71, 0.999999]) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("top_p", "nucleus"),
    [
        (1e-9, {1}),
        (0.49, {1}),
        (0.51, {1, 3}),
        (0.79, {1, 3}),
        (0.81, {1, 2, 3}),
        (1.0, {0, 1, 2, 3}),
    ],
)
def test_the_nucleus_is_the_smallest_set_that_holds_top_p(top_p: float, nucleus: set[int]) -> None:
    points = [i / 1000 for i in range(1000)] + [1 - 2**-53]
    assert set(picked(points, top_p=top_p)) == nucleus


def test_temperature_sharpens() -> None:
    points = [i / 1000 for i in range(1000)]
    cold = picked(points, temperature=0.5)
    expected = PROBABILITIES[1] ** 2 / sum(p**2 for p in PROBABILITIES)
    assert cold.count(1) / 1000 == pytest.approx(expected, abs=2e-3)
