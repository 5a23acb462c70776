"""AdamW on bfloat16 weights with their remainders follows float32's path, and resumes."""

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lpfloop.policies.trainers.bfloat16 import (
    RemainderAdamW,
    join,
    join_weights,
    split,
    split_weights,
)

pytestmark = pytest.mark.cuda

RATE = 1e-2


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator(torch.get_default_device()).manual_seed(1)
    xs = [torch.randn(32, 8, generator=draw) for _ in range(count)]
    return [(x, x[:, :1] * x[:, 1:2]) for x in xs]


def fitted(model: nn.Module, optimizer: Any, data: list[tuple[Tensor, Tensor]]) -> None:
    dtype = next(model.parameters()).dtype
    for x, y in data:
        loss = (model(x.to(dtype)).float() - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_split_and_join() -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (100_000,), dtype=torch.int32)
    ties = torch.arange(-4, 4, dtype=torch.int32) * 2**15
    whole = torch.cat([bits, ties]).view(torch.float32)
    narrow, lower = split(whole)
    assert torch.equal(join(narrow, lower).view(torch.int32), whole.view(torch.int32))
    finite = whole[whole.abs() < 1e38]
    assert torch.allclose(split(finite)[0].float(), finite, rtol=2**-8, atol=1e-38)


def test_small_steps_add_up() -> None:
    start = torch.full((4,), 0.1)
    ended: dict[str, Tensor] = {}
    for kind in ("plain", "kept"):
        layer = nn.ParameterList([nn.Parameter(start.clone())])
        split_weights(layer)
        optimizer: Any = (
            torch.optim.AdamW(layer.parameters(), lr=2e-6, weight_decay=0.0)
            if kind == "plain"
            else RemainderAdamW(layer.parameters(), lr=2e-6)
        )
        for _ in range(100):
            layer[0].grad = torch.ones_like(layer[0])
            optimizer.step()
        if kind == "kept":
            join_weights(layer)
        ended[kind] = layer[0].detach().float()
    assert torch.equal(ended["plain"], split(start)[0].float())
    assert torch.allclose(ended["kept"], start - 100 * 2e-6, atol=1e-7)


def test_steps_of_adamw() -> None:
    """The same gradients give the same weights, to float32's rounding."""
    arguments = {"lr": RATE, "weight_decay": 0.01}
    one, other = net(), net()
    split_weights(other)
    optimizers = (
        torch.optim.AdamW(one.parameters(), **arguments),
        RemainderAdamW(other.parameters(), **arguments),
    )
    for seed in range(20):
        draw = torch.Generator(torch.get_default_device()).manual_seed(seed)
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            narrow = torch.randn(p.shape, generator=draw).bfloat16()
            p.grad, q.grad = narrow.float(), narrow
        for optimizer in optimizers:
            optimizer.step()
    join_weights(other)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6)


def test_resume() -> None:
    data = batches(20)
    straight, first, second = net(), net(), net(seed=5)
    for model in (straight, first, second):
        split_weights(model)
    fitted(straight, RemainderAdamW(straight.parameters(), lr=RATE), data)
    begun = RemainderAdamW(first.parameters(), lr=RATE)
    fitted(first, begun, data[:10])
    kept = io.BytesIO()
    torch.save([first.state_dict(), begun.state_dict()], kept)
    kept.seek(0)
    weights, states = torch.load(kept, weights_only=True)
    second.load_state_dict(weights)
    resumed = RemainderAdamW(second.parameters(), lr=RATE)
    resumed.load_state_dict(states)
    fitted(second, resumed, data[10:])
    for model in (straight, second):
        join_weights(model)
    for p, q in zip(straight.parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q)
