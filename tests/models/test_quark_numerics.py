"""Quark's quantiles and loss equal numbers by hand and finite differences, in float64."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lpfloop.configs.methods import QuarkTraining
from lpfloop.policies.online.quantiles import (
    Pool,
    Sample,
    quantiles_of,
)

torch = pytest.importorskip("torch")

from lpfloop.policies.online.numerics import quark_terms  # noqa: E402 -- needs torch
from lpfloop.policies.online.quark import QuarkTrainer, batches  # noqa: E402 -- needs torch

pytestmark = [pytest.mark.model, pytest.mark.cuda]


def test_quantiles():
    assert quantiles_of([0.1, 0.9, 0.5, 0.7], 4) == [3, 0, 2, 1]
    assert quantiles_of([1.0, 1.0, 1.0, 1.0], 2) == [0, 0, 1, 1]
    assert quantiles_of([0.3], 4) == [0]


def in_order(lessons: int) -> Callable[[int], Any]:
    return lambda visit: torch.arange(lessons).roll(visit)


def test_rounds():
    """512 rollouts, 128 of them best, a batch of 256: two passes over the best."""
    paper = QuarkTraining(rollouts=512, batch_size=256, inner_epochs=2)
    found = batches(paper, in_order(128), 512)
    assert [sorted(batch) for batch in found] == [[*range(128)]] * 2
    assert QuarkTrainer.planned_updates(paper) == len(found)


def sample(number: int) -> Sample:
    return Sample(prompt_id=f"p{number}", answer=(number, 1), ended=True, score=float(number))


def test_pools(tmp_path: Path):
    reset, growing = Pool(tmp_path, growing=False), Pool(tmp_path, growing=True)
    for pool, second in ((reset, [sample(2)]), (growing, [sample(1), sample(2)])):
        assert pool.after(1, [sample(1)]) == [sample(1)]
        assert pool.after(2, [sample(2)]) == second


def test_resumed_pool(tmp_path: Path):
    first = Pool(tmp_path, growing=True)
    for step in (1, 2, 3):
        first.after(step, [sample(step)])
    resumed = Pool(tmp_path, growing=True)
    assert resumed.after(3, [sample(3)]) == [sample(1), sample(2), sample(3)]


P, Q = (0.7, 0.2, 0.1), (0.5, 0.25, 0.25)
"""Two distributions over three tokens."""


def logits(*rows: tuple[float, ...]) -> "torch.Tensor":
    return torch.tensor([[[math.log(p) + 1.5 for p in row] for row in rows]], dtype=torch.float64)


def test_terms():
    found = quark_terms(logits(P, Q), logits(Q, Q), torch.tensor([[0, 2]]), vocabulary=3)
    kl = sum(p * math.log(p / q) for p, q in zip(P, Q, strict=True))
    entropies = [-sum(p * math.log(p) for p in row) for row in (P, Q)]
    assert found.nll[0].tolist() == pytest.approx([-math.log(0.7), -math.log(0.25)], abs=1e-12)
    assert found.kl[0].tolist() == pytest.approx([kl, 0.0], abs=1e-12)
    assert found.entropy[0].tolist() == pytest.approx(entropies, abs=1e-12)
    loss = found.loss(kl_coef=0.05, entropy_coef=0.06)
    by_hand = [
        -math.log(0.7) + 0.05 * kl - 0.06 * entropies[0],
        -math.log(0.25) - 0.06 * entropies[1],
    ]
    assert loss[0].tolist() == pytest.approx(by_hand, abs=1e-12)


def test_gradient():
    generator = torch.Generator(torch.get_default_device()).manual_seed(3)
    own = torch.randn(2, 3, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    other = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    tokens = torch.randint(0, 5, (2, 3), generator=generator)

    def loss(x: "torch.Tensor") -> "torch.Tensor":
        return quark_terms(x, other, tokens, vocabulary=5).loss(kl_coef=0.3, entropy_coef=0.2).sum()

    assert torch.autograd.gradcheck(loss, (own,), atol=1e-7)
