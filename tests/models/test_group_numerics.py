"""The formulas of GRPO, RLOO and online DPO equal numbers computed by hand, and TRL's."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from lpfloop.policies.online import numerics  # noqa: E402 -- needs torch
from lpfloop.policies.online.numerics import (  # noqa: E402 -- needs torch
    best_and_worst,
    cut_share,
    dpo_losses,
    dpo_margins,
    leave_one_out,
    position_weights,
    relative_advantages,
)

pytestmark = [pytest.mark.model, pytest.mark.cuda]

REWARDS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=2, max_size=9)
CLIP, HIGH, BETA, LONGEST = 0.2, 0.28, 0.3, 7


def test_relative_advantages() -> None:
    # Mean 2, standard deviation sqrt(((1)^2 + 0 + 1^2) / 2) = 1.
    assert relative_advantages([1.0, 2.0, 3.0], scaled=True) == pytest.approx([-1, 0, 1], rel=2e-4)
    assert relative_advantages([1.0, 2.0, 3.0], scaled=False) == [-1.0, 0.0, 1.0]


def test_even_group() -> None:
    for reward in [0.0, 0.1, -1 / 3]:
        assert relative_advantages([reward] * 3, scaled=True) == [0.0, 0.0, 0.0]


def test_leave_one_out() -> None:
    assert leave_one_out([1.0, 2.0, 6.0]) == [1.0 - 4.0, 2.0 - 3.5, 6.0 - 1.5]


@given(REWARDS)
def test_best_and_worst(rewards) -> None:
    pair = best_and_worst(rewards)
    if len(set(rewards)) == 1:
        assert pair is None
    else:
        assert pair is not None
        assert (rewards[pair[0]], rewards[pair[1]]) == (max(rewards), min(rewards))


def test_position_weights() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    given_ = {"answers": 2, "tokens": 6, "longest": 10}
    answer = position_weights(mask, "answer", **given_)
    assert answer.tolist() == [[0.25, 0.25, 0, 0], [0.125] * 4]
    token = position_weights(mask, "token", **given_)
    assert token.flatten().tolist() == pytest.approx([1 / 6, 1 / 6, 0, 0] + [1 / 6] * 4)
    constant = position_weights(mask, "constant", **given_)
    assert constant.flatten().tolist() == pytest.approx([0.05, 0.05, 0, 0] + [0.05] * 4)


def test_clipping() -> None:
    ratio = torch.tensor([1.25, 1.25, 1.3, 0.75, 0.75])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    assert cut_share(ratio, advantage, CLIP, HIGH).tolist() == [0, 0, 1, 1, 0]
    logprobs = ratio.log().requires_grad_(requires_grad=True)
    losses = numerics.policy_losses(logprobs, torch.zeros(5), advantage, CLIP, HIGH)
    losses.sum().backward()
    assert (logprobs.grad == 0).float().tolist() == [0, 0, 1, 1, 0]


def test_dpo_loss() -> None:
    logprobs, reference = torch.tensor([-1.0, -4.0]), torch.tensor([-2.0, -3.0])
    chosen, rejected = dpo_margins(logprobs, reference, 0.5)
    assert (chosen.item(), rejected.item()) == (0.5, -0.5)
    assert dpo_losses(chosen, rejected).item() == pytest.approx(math.log(1 + math.exp(-1)))
