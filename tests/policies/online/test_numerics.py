"""The formulas of online methods against numbers worked out by hand, and finite differences."""

import math

import pytest

torch = pytest.importorskip("torch")

from lpfloop.policies.online import numerics  # noqa: E402 -- needs torch

pytestmark = pytest.mark.model

CLOSE = {"atol": 1e-6, "rtol": 0}


def tensor(*rows) -> "torch.Tensor":
    return torch.tensor(rows, dtype=torch.float64)


def close(value, *rows) -> None:
    torch.testing.assert_close(value, tensor(*rows), **CLOSE)


def slopes(function, at: "torch.Tensor", step: float = 1e-6) -> "torch.Tensor":
    """Return the gradient of a function with one value by central differences."""
    result = torch.zeros_like(at)
    for i in range(at.numel()):
        nudge = torch.zeros_like(at).view(-1)
        nudge[i] = step
        up, down = function(at + nudge.view_as(at)), function(at - nudge.view_as(at))
        result.view(-1)[i] = (up - down) / (2 * step)
    return result


def gradient(function, at: "torch.Tensor") -> "torch.Tensor":
    leaf = at.clone().requires_grad_(requires_grad=True)
    function(leaf).backward()
    return leaf.grad


# KL and rewards


def test_the_kl_estimators_are_those_of_the_log_ratio() -> None:
    policy, reference = tensor([-1.0, -2.0]), tensor([-1.5, -1.0])
    close(numerics.kl_estimate(policy, reference, "k1"), [0.5, -1.0])
    close(numerics.kl_estimate(policy, reference, "k1_clamped"), [0.5, 0.0])
    k3 = [math.exp(-0.5) - 1 + 0.5, math.exp(1.0) - 1 - 1.0]
    close(numerics.kl_estimate(policy, reference, "k3"), k3)


def test_k1_and_k3_have_the_kl_as_mean_and_the_clamped_one_more() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    exact = float((p * (p / q).log()).sum())
    means = {
        name: float((p * numerics.kl_estimate(p.log(), q.log(), name)).sum())
        for name in ("k1", "k1_clamped", "k3")
    }
    assert means["k1"] == pytest.approx(exact, abs=1e-12)
    assert means["k3"] == pytest.approx(exact, abs=1e-12)
    assert means["k1_clamped"] > exact


def test_a_reward_stands_at_the_last_token_and_the_penalty_at_each() -> None:
    kl = tensor([0.5, 1.0, 9.0], [2.0, 9.0, 9.0], [9.0, 9.0, 9.0])
    mask = tensor([1, 1, 0], [1, 0, 0], [0, 0, 0])
    scores = torch.tensor([3.0, -1.0, 7.0], dtype=torch.float64)
    rewards = numerics.shaped_rewards(scores, kl, mask, 0.1)
    close(rewards, [-0.05, 2.9, 0.0], [-1.2, 0.0, 0.0], [0.0, 0.0, 0.0])


# whitening


def test_whitening_leaves_masked_positions_out_of_the_moments() -> None:
    values, mask = tensor([1.0, 3.0, 100.0], [5.0, 50.0, 50.0]), tensor([1, 1, 0], [1, 0, 0])
    white = numerics.whiten(values, mask)
    deviation = math.sqrt(8 / 3)  # of 1, 3, 5 around 3
    told = white[mask.bool()]
    torch.testing.assert_close(told, tensor(-2 / deviation, 0.0, 2 / deviation), **CLOSE)


def test_scaling_keeps_the_mean() -> None:
    values, mask = tensor([1.0, 3.0], [5.0, 7.0]), torch.ones(2, 2, dtype=torch.float64)
    scaled = numerics.whiten(values, mask, shift_mean=False)
    deviation = math.sqrt(5)
    close(
        scaled,
        [4 - 3 / deviation, 4 - 1 / deviation],
        [4 + 1 / deviation, 4 + 3 / deviation],
    )


def test_scaling_over_padding_gives_every_position_a_constant() -> None:
    """The papers' code: each token, padding too, gets mean · (1 - 1 / deviation)."""
    rewards = torch.zeros(64, 300, dtype=torch.float64)
    rewards[:, -1] = torch.linspace(0, 1, 64, dtype=torch.float64)
    everywhere = torch.ones_like(rewards)
    scaled = numerics.whiten(rewards, everywhere, shift_mean=False)
    mean = float(rewards.mean())
    deviation = float(rewards.std(correction=0))
    assert float(scaled[0, 0]) == pytest.approx(mean * (1 - 1 / deviation), abs=1e-4)


def test_groups_are_whitened_each_by_itself_the_last_may_be_smaller() -> None:
    values = tensor([0.0, 2.0], [10.0, 30.0], [5.0, 7.0])
    mask = torch.ones_like(values)
    white = numerics.whiten_groups(values, mask, 1)
    close(white, [-1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0])
    assert not torch.allclose(white, numerics.whiten(values, mask))


# advantages


def test_advantages_follow_from_the_recursion() -> None:
    rewards, values = tensor([1.0, 0.0, 2.0]), tensor([0.5, 1.0, -1.0])
    found, returns = numerics.advantages(rewards, values, gamma=0.9, lam=0.8)
    last = 2.0 - -1.0
    middle = 0.0 + 0.9 * -1.0 - 1.0 + 0.72 * last
    first = 1.0 + 0.9 * 1.0 - 0.5 + 0.72 * middle
    close(found, [first, middle, last])
    close(returns, [first + 0.5, middle + 1.0, last - 1.0])


def test_without_discount_returns_are_the_rewards_to_come() -> None:
    rewards, values = tensor([1.0, -2.0, 4.0]), tensor([0.3, 0.7, 0.1])
    found, returns = numerics.advantages(rewards, values, gamma=1.0, lam=1.0)
    close(returns, [3.0, 2.0, 4.0])
    close(found, [2.7, 1.3, 3.9])


def test_padding_with_reward_and_value_zero_changes_no_advantage() -> None:
    rewards, values = tensor([1.0, -2.0]), tensor([0.3, 0.7])
    padded = [torch.cat([x, torch.zeros(1, 3, dtype=torch.float64)], 1) for x in (rewards, values)]
    short, _ = numerics.advantages(rewards, values, gamma=0.97, lam=0.9)
    long, _ = numerics.advantages(*padded, gamma=0.97, lam=0.9)
    torch.testing.assert_close(long[:, :2], short, **CLOSE)


# losses and their gradients


def test_the_policy_loss_is_clipped_on_the_side_that_would_gain() -> None:
    old = tensor([0.0, 0.0, 0.0, 0.0])
    logprobs = tensor([math.log(1.5), math.log(1.5), math.log(0.5), math.log(0.5)])
    advantage = tensor([2.0, -2.0, 2.0, -2.0])
    losses = numerics.policy_losses(logprobs, old, advantage, 0.2)
    close(losses, [-2.4, 3.0, -1.0, 1.6])


def test_the_value_loss_takes_the_worse_of_clipped_and_unclipped() -> None:
    values, old, returns = tensor([1.0, 1.0]), tensor([0.0, 0.0]), tensor([2.0, 0.9])
    losses = numerics.value_losses(values, old, returns, 0.2)
    close(losses, [0.5 * 1.8**2, 0.5 * 0.7**2])


def test_entropy_is_that_of_the_distribution() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    expected = 0.5 * math.log(2) + 0.5 * math.log(4)
    torch.testing.assert_close(numerics.entropy(probabilities.log() + 3), tensor(expected), **CLOSE)


def test_the_approximate_kl_is_half_the_squared_log_ratio() -> None:
    close(numerics.approximate_kl(tensor([-1.0]), tensor([-1.4])), [0.08])


@pytest.mark.parametrize("seed", range(3))
def test_gradients_agree_with_finite_differences(seed) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    old, advantage, returns = normal(3, 4), normal(3, 4), normal(3, 4)
    logits, mask = normal(3, 4, 5), (normal(3, 4) > 0).double()
    mask[:, 0] = 1
    tokens = torch.randint(5, (3, 4, 1), generator=generator)

    def policy(x):
        logprobs = x.log_softmax(-1).gather(-1, tokens)[..., 0]
        losses = numerics.policy_losses(logprobs, old * 0.1 - 1.5, advantage, 0.2)
        return numerics.masked_mean(losses - 0.01 * numerics.entropy(x), mask)

    def value(x):
        return numerics.masked_mean(numerics.value_losses(x, old, returns, 0.2), mask)

    def penalty(x):
        return numerics.kl_estimate(x, old, "k3").sum()

    for function, at in ((policy, logits), (value, normal(3, 4)), (penalty, normal(3, 4))):
        torch.testing.assert_close(gradient(function, at), slopes(function, at), atol=1e-6, rtol=0)


def test_the_adaptive_coefficient_follows_its_target_by_a_bounded_error() -> None:
    assert numerics.adapted(0.2, 6.6, target=6.0) == pytest.approx(0.2 * 1.01)
    assert numerics.adapted(0.2, 60.0, target=6.0) == pytest.approx(0.2 * 1.02)
    assert numerics.adapted(0.2, 0.0, target=6.0) == pytest.approx(0.2 * 0.98)
