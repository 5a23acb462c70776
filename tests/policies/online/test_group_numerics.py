"""The formulas of GRPO, RLOO and online DPO against numbers worked out by hand, and TRL's."""

import importlib
import math
import warnings
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from lpfloop.policies.online import numerics  # noqa: E402 -- needs torch
from lpfloop.policies.online.group_numerics import (  # noqa: E402 -- needs torch
    best_and_worst,
    cut_share,
    dpo_losses,
    dpo_margins,
    leave_one_out,
    position_weights,
    relative_advantages,
)

pytestmark = pytest.mark.model

REWARDS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=2, max_size=9)
CLIP, HIGH, BETA, LONGEST = 0.2, 0.28, 0.3, 7


def test_an_advantage_is_the_distance_from_the_mean_in_standard_deviations() -> None:
    # Mean 2, standard deviation sqrt(((1)^2 + 0 + 1^2) / 2) = 1.
    assert relative_advantages([1.0, 2.0, 3.0], scaled=True) == pytest.approx([-1, 0, 1], rel=2e-4)
    assert relative_advantages([1.0, 2.0, 3.0], scaled=False) == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -1 / 3])
@pytest.mark.parametrize("scaled", [True, False])
def test_an_even_group_has_no_advantage_whatever_the_rounding(reward, scaled) -> None:
    assert relative_advantages([reward] * 3, scaled=scaled) == [0.0, 0.0, 0.0]


def test_the_baseline_is_the_mean_of_the_others() -> None:
    assert leave_one_out([1.0, 2.0, 6.0]) == [1.0 - 4.0, 2.0 - 3.5, 6.0 - 1.5]


@given(REWARDS)
def test_both_advantages_sum_to_0_and_rank_as_the_rewards_do(rewards) -> None:
    for found in (relative_advantages(rewards, scaled=True), leave_one_out(rewards)):
        assert sum(found) == pytest.approx(0, abs=1e-9)
        assert all(math.isfinite(value) for value in found)
        order = sorted(range(len(rewards)), key=lambda i: rewards[i])
        assert [found[i] for i in order] == sorted(found)


@given(REWARDS)
def test_a_pair_is_the_best_and_the_worst_and_ties_make_none(rewards) -> None:
    pair = best_and_worst(rewards)
    if len(set(rewards)) == 1:
        assert pair is None
    else:
        assert pair is not None
        assert (rewards[pair[0]], rewards[pair[1]]) == (max(rewards), min(rewards))


def test_what_positions_count_in_the_loss() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    given_ = {"answers": 2, "tokens": 6, "longest": 10}
    answer = position_weights(mask, "answer", **given_)
    assert answer.tolist() == [[0.25, 0.25, 0, 0], [0.125] * 4]
    token = position_weights(mask, "token", **given_)
    assert token.flatten().tolist() == pytest.approx([1 / 6, 1 / 6, 0, 0] + [1 / 6] * 4)
    constant = position_weights(mask, "constant", **given_)
    assert constant.flatten().tolist() == pytest.approx([0.05, 0.05, 0, 0] + [0.05] * 4)


def test_clipping_leaves_no_gradient_where_the_ratio_has_gone_too_far() -> None:
    ratio = torch.tensor([1.25, 1.25, 1.3, 0.75, 0.75])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    assert cut_share(ratio, advantage, CLIP, HIGH).tolist() == [0, 0, 1, 1, 0]
    logprobs = ratio.log().requires_grad_(requires_grad=True)
    losses = numerics.policy_losses(logprobs, torch.zeros(5), advantage, CLIP, HIGH)
    losses.sum().backward()
    assert (logprobs.grad == 0).float().tolist() == [0, 0, 1, 1, 0]


def test_dpos_loss_of_a_pair() -> None:
    logprobs, reference = torch.tensor([-1.0, -4.0]), torch.tensor([-2.0, -3.0])
    chosen, rejected = dpo_margins(logprobs, reference, 0.5)
    assert (chosen.item(), rejected.item()) == (0.5, -0.5)
    assert dpo_losses(chosen, rejected).item() == pytest.approx(math.log(1 + math.exp(-1)))


def measured():
    """Return log-probabilities now, before and of the reference, mask and advantages."""
    generator = torch.Generator().manual_seed(5)
    exact = torch.float64
    mask = torch.tensor([[1.0] * n + [0.0] * (6 - n) for n in (6, 2, 4, 1)], dtype=exact)
    drawn = torch.randn(3, 4, 6, generator=generator, dtype=exact) * 0.3 - 2
    now, before, reference = drawn * mask
    return now, before, reference, mask, torch.tensor([1.5, -0.5, -2.0, 1.0], dtype=exact)


def ours(averaging: str) -> "torch.Tensor":
    now, before, reference, mask, advantages = measured()
    weights = position_weights(mask, averaging, answers=4, tokens=13, longest=LONGEST)
    losses = numerics.policy_losses(now, before, advantages[:, None], CLIP, HIGH)
    return ((losses + BETA * numerics.kl_estimate(now, reference, "k3")) * weights).sum()


class Whole:
    """An accelerator of one process."""

    num_processes = 1

    def gather(self, value):
        return value

    def reduce(self, value, reduction):
        return value


class Bare(SimpleNamespace):
    """A TRL trainer of which the loss is wanted alone: what is not said here is off."""

    def __getattr__(self, _name: str) -> None:
        return None


def trl_loss(kind, loss_type: str = "") -> "torch.Tensor":
    """Return what a TRL trainer's own function says of the same numbers."""
    now, before, reference, mask, advantages = measured()
    bare = Bare(
        args=Bare(steps_per_generation=1),
        model=SimpleNamespace(training=True),
        accelerator=Whole(),
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        importance_sampling_level="token",
        beta=BETA,
        epsilon_low=CLIP,
        epsilon_high=HIGH,
        loss_type=loss_type,
        max_completion_length=LONGEST,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (now, torch.zeros_like(now), None),
    )
    inputs = {
        "prompt_ids": torch.ones(4, 2, dtype=torch.long),
        "prompt_mask": torch.ones(4, 2),
        "completion_ids": torch.ones(4, 6, dtype=torch.long),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": before,
        "old_logps": before.sum(dim=1),
        "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum(),
    }
    return kind._compute_loss(bare, None, inputs)


def trls(name: str):
    """Import a trainer of TRL, which warns of the vLLM that it loads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module("trl"), name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("averaging", "loss_type"), [("answer", "grpo"), ("token", "dapo"), ("constant", "dr_grpo")]
)
def test_grpos_loss_is_trls(averaging, loss_type) -> None:
    told = trl_loss(trls("GRPOTrainer"), loss_type)
    assert ours(averaging).item() == pytest.approx(told.item(), rel=1e-9)


@pytest.mark.slow
def test_rloos_loss_is_trls() -> None:
    now, before, _, _, advantages = measured()
    whole = numerics.policy_losses(now.sum(dim=1), before.sum(dim=1), advantages, CLIP, HIGH)
    assert whole.mean().item() == pytest.approx(trl_loss(trls("RLOOTrainer")).item(), rel=1e-9)
