"""The formulas of online methods equal numbers computed by hand, and finite differences."""

import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from lpfloop.configs.methods import PPOTraining  # noqa: E402 -- needs torch
from lpfloop.policies.online import numerics  # noqa: E402 -- needs torch
from lpfloop.policies.online.networks import FLOAT32_AGREEMENT, agreement  # noqa: E402 -- needs torch
from lpfloop.policies.online.ppo import rewards_of  # noqa: E402 -- needs torch

pytestmark = [pytest.mark.model, pytest.mark.cuda]

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


def test_kl_estimators() -> None:
    policy, reference = tensor([-1.0, -2.0]), tensor([-1.5, -1.0])
    close(numerics.kl_estimate(policy, reference, "k1"), [0.5, -1.0])
    close(numerics.kl_estimate(policy, reference, "k1_clamped"), [0.5, 0.0])
    k3 = [math.exp(-0.5) - 1 + 0.5, math.exp(1.0) - 1 - 1.0]
    close(numerics.kl_estimate(policy, reference, "k3"), k3)


def test_shaped_rewards() -> None:
    kl = tensor([0.5, 1.0, 9.0], [2.0, 9.0, 9.0], [9.0, 9.0, 9.0])
    mask = tensor([1, 1, 0], [1, 0, 0], [0, 0, 0])
    scores = torch.tensor([3.0, -1.0, 7.0], dtype=torch.float64)
    rewards = numerics.shaped_rewards(scores, kl, mask, 0.1)
    close(rewards, [-0.05, 2.9, 0.0], [-1.2, 0.0, 0.0], [0.0, 0.0, 0.0])


# whitening


def test_whiten_masked() -> None:
    values, mask = tensor([1.0, 3.0, 100.0], [5.0, 50.0, 50.0]), tensor([1, 1, 0], [1, 0, 0])
    white = numerics.whiten(values, mask)
    deviation = math.sqrt(8 / 3)  # of 1, 3, 5 around 3
    told = white[mask.bool()]
    torch.testing.assert_close(told, tensor(-2 / deviation, 0.0, 2 / deviation), **CLOSE)


def test_scale_keeps_mean() -> None:
    values, mask = tensor([1.0, 3.0], [5.0, 7.0]), torch.ones(2, 2, dtype=torch.float64)
    scaled = numerics.whiten(values, mask, shift_mean=False)
    deviation = math.sqrt(5)
    close(
        scaled,
        [4 - 3 / deviation, 4 - 1 / deviation],
        [4 + 1 / deviation, 4 + 3 / deviation],
    )


# advantages


def test_advantages() -> None:
    rewards, values = tensor([1.0, 0.0, 2.0]), tensor([0.5, 1.0, -1.0])
    found, returns = numerics.advantages(rewards, values, gamma=0.9, lam=0.8)
    last = 2.0 - -1.0
    middle = 0.0 + 0.9 * -1.0 - 1.0 + 0.72 * last
    first = 1.0 + 0.9 * 1.0 - 0.5 + 0.72 * middle
    close(found, [first, middle, last])
    close(returns, [first + 0.5, middle + 1.0, last - 1.0])


# losses and their gradients


def test_policy_loss() -> None:
    old = tensor([0.0, 0.0, 0.0, 0.0])
    logprobs = tensor([math.log(1.5), math.log(1.5), math.log(0.5), math.log(0.5)])
    advantage = tensor([2.0, -2.0, 2.0, -2.0])
    losses = numerics.policy_losses(logprobs, old, advantage, 0.2)
    close(losses, [-2.4, 3.0, -1.0, 1.6])


def test_value_loss() -> None:
    values, old, returns = tensor([1.0, 1.0]), tensor([0.0, 0.0]), tensor([2.0, 0.9])
    losses = numerics.value_losses(values, old, returns, 0.2)
    close(losses, [0.5 * 1.8**2, 0.5 * 0.7**2])


def test_entropy() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    expected = 0.5 * math.log(2) + 0.5 * math.log(4)
    torch.testing.assert_close(numerics.entropy(probabilities.log() + 3), tensor(expected), **CLOSE)


def test_approximate_kl() -> None:
    close(numerics.approximate_kl(tensor([-1.0]), tensor([-1.4])), [0.08])


def test_gradients(subtests):
    seed = 0
    generator = torch.Generator(torch.get_default_device()).manual_seed(seed)

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


def rollout(score, *, ended, reference=None):
    """Make a rollout with the fields that rewards depend on."""
    return SimpleNamespace(known_score=score, ended=ended, reference=reference)


def test_rewards_of_cut_answers(subtests):
    reference = SimpleNamespace(score=1.0, ended=False)
    drawn = [rollout(s, ended=s < 4, reference=reference) for s in (2.0, 3.0, 5.0)]
    expected = {
        ("replace", False): [2.0, 3.0, -4.0],
        ("replace", True): [6.0, 7.0, 0.0],
        ("subtract", True): [5.0, 6.0, 4.0],
        # 2.0 - 1.0 is the lowest of an answer that ended; the penalty counts deviations.
        ("below", True): [1.0, 2.0, 1.0 - 4 * 0.5],
    }
    for (rule, relative), rewards in expected.items():
        with subtests.test(rule=rule, relative=relative):
            settings = PPOTraining(
                missing_eos=rule, missing_eos_penalty=4.0, reference_reward=relative,
                whiten_advantages="none",
            )  # fmt: skip
            found, baseline = rewards_of(drawn, settings)
            assert found == pytest.approx(rewards)
            assert (baseline is not None) == relative


def test_explained_variance():
    returns, values = tensor([1.0, 3.0]), tensor([1.0, 2.0])
    found = numerics.explained_variance(values, returns, torch.ones_like(returns))
    assert float(found) == pytest.approx(0.5)


def test_agreement_by_precision():
    def job(*, adapts=False, publish="auto"):
        fit = SimpleNamespace(adapts=adapts, publish=publish)
        return SimpleNamespace(method="ppo", fit=fit)

    cpu, card = torch.device("cpu"), torch.device("cuda")
    assert agreement(job(), cpu) == FLOAT32_AGREEMENT
    assert agreement(job(adapts=True), cpu) == FLOAT32_AGREEMENT
    assert agreement(job(), card) == 0.05
    # Rounded for the sampler alone.
    assert agreement(job(publish="float16"), cpu) == 0.15
    assert agreement(job(adapts=True, publish="bfloat16"), cpu) == 0.15
