"""The divergences of critique distillation, against sums written out number by number."""

import math

import pytest
import torch

from lpfloop.policies.trainers.divergences import DIVERGENCES, entropy

TEACHER = ((0.7, 0.2, 0.1), (0.05, 0.05, 0.9))
STUDENT = ((0.4, 0.4, 0.2), (0.3, 0.6, 0.1))


def by_hand(name: str, p: tuple[float, ...], q: tuple[float, ...]) -> float:
    def kl(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        return math.fsum(x * math.log(x / y) for x, y in zip(a, b, strict=True))

    middle = tuple((x + y) / 2 for x, y in zip(p, q, strict=True))
    return {
        "forward_kl": kl(p, q),
        "reverse_kl": kl(q, p),
        "jsd": (kl(p, middle) + kl(q, middle)) / 2,
    }[name]


def logs(rows: tuple[tuple[float, ...], ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
def test_a_divergence_is_the_sum_over_the_vocabulary(name: str) -> None:
    found = DIVERGENCES[name](logs(TEACHER), logs(STUDENT))
    expected = [by_hand(name, p, q) for p, q in zip(TEACHER, STUDENT, strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert DIVERGENCES[name](logs(TEACHER), logs(TEACHER)).abs().max() < 1e-12


def test_only_the_jensen_shannon_divergence_is_symmetric_and_bounded() -> None:
    certain, other = logs(((1 - 1e-12, 1e-12),)), logs(((1e-12, 1 - 1e-12),))
    far = {name: float(d(certain, other)) for name, d in DIVERGENCES.items()}
    assert far["jsd"] == pytest.approx(math.log(2), abs=1e-9)
    assert min(far["forward_kl"], far["reverse_kl"]) > 20
    one, two = (DIVERGENCES["jsd"](*ps) for ps in ((certain, other), (other, certain)))
    assert torch.equal(one, two)


def test_a_word_that_the_teacher_never_says_costs_nothing_by_forward_kl() -> None:
    p, q = logs(((1.0, 1e-300),)), logs(((0.5, 0.5),))
    assert float(DIVERGENCES["forward_kl"](p, q)) == pytest.approx(math.log(2))


def test_entropy_is_that_of_the_distribution() -> None:
    expected = [-math.fsum(x * math.log(x) for x in p) for p in TEACHER]
    assert entropy(logs(TEACHER)).tolist() == pytest.approx(expected, abs=1e-12)
