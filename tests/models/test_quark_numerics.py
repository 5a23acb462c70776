"""Quark's quantiles and loss equal numbers by hand and finite differences, in float64."""

import math

import pytest

from lpfloop.configs.methods import QuarkTraining

torch = pytest.importorskip("torch")

from lpfloop.policies.online.numerics import quantiles_of, quark_terms  # noqa: E402 -- needs torch
from lpfloop.policies.online.quark import QuarkTrainer  # noqa: E402 -- needs torch

pytestmark = [pytest.mark.model, pytest.mark.cuda]


def test_quantiles():
    assert quantiles_of([0.1, 0.9, 0.5, 0.7], 4) == [3, 0, 2, 1]
    assert quantiles_of([1.0, 1.0, 1.0, 1.0], 2) == [0, 0, 1, 1]
    assert quantiles_of([0.3], 4) == [0]


def test_rounds():
    """512 rollouts, 128 of them best, a batch of 256: two passes over the best."""
    paper = QuarkTraining(rollouts=512, batch_size=256, inner_epochs=2)
    assert QuarkTrainer.planned_updates(paper) == 2
    assert QuarkTrainer.planned_updates(paper.model_copy(update={"batch_size": 100})) == 4


P, Q = (0.7, 0.2, 0.1), (0.5, 0.25, 0.25)
"""Two distributions over three tokens."""


def logits(*rows: tuple[float, ...]) -> "torch.Tensor":
    return torch.tensor([[[math.log(p) + 1.5 for p in row] for row in rows]], dtype=torch.float64)


def test_terms():
    found = quark_terms(logits(P, Q), logits(Q, Q), torch.tensor([[0, 2]]))
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
    other = torch.randn(2, 3, 7, dtype=torch.float64, generator=generator)
    tokens = torch.randint(0, 7, (2, 3), generator=generator)

    def loss(x: "torch.Tensor") -> "torch.Tensor":
        return quark_terms(x, other, tokens).loss(kl_coef=0.3, entropy_coef=0.2).sum()

    assert torch.autograd.gradcheck(loss, (own,), atol=1e-7)
