"""Networks over one body: each is itself within its block, and leaves no trace of it behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from online_jobs import make_online_world
from rollouts import PPO, ppo_job

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.online.networks import Networks, SeparateNetworks
from lpfloop.policies.online.rollout_weights import RolloutWeights
from lpfloop.policies.online.shared_body import SharedBody
from lpfloop.policies.trainers.answer_logits import answer_logits
from lpfloop.policies.trainers.sequences import Pass, Spoken, passes
from lpfloop.policies.trainers.trainer_job import TrainJob
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = pytest.mark.model

CPU = torch.device("cpu")
SPOKEN = [
    Spoken(prompt=(5, 6, 7), answer=(8, 9, 10, 1)),
    Spoken(prompt=(11, 12), answer=(13, 1)),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """A job of PPO with adapters on a random model."""
    world = make_online_world(tmp_path_factory.mktemp("world"))
    plain = ppo_job(world / "job", policy=world / "model", reward=world / "reward", settings=PPO)
    plain.output.mkdir()
    return replace(plain, fit=TrainingFit(lora=LoRAConfig(r=4)))


@pytest.fixture
def body(job) -> SharedBody:
    """The job's networks, as a training begins with them."""
    return SharedBody(job, CPU, valued=True)


def work() -> Pass:
    """Return a pass over two answers."""
    (one,) = passes(SPOKEN, range(2), 2, CPU)
    return one


def said(networks: Networks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what policy, reference and value model say of two answers."""
    with torch.no_grad():
        with networks.policy() as policy:
            own = answer_logits(policy, work())
        with networks.reference() as reference:
            other = answer_logits(reference, work())
        with networks.value() as value:
            values = value(work())
    return own, other, values


def moved(networks: Networks, name: str) -> None:
    """Move the weights of one of the trained networks."""
    with torch.no_grad():
        for weight in networks.trained[name].parameters():
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
            weight.add_(0.1 * noise)


@pytest.mark.usefixtures("one_thread")
def test_a_training_begins_with_the_model_itself_and_values_of_zero(job, body) -> None:
    plain = SeparateNetworks(replace(job, fit=TrainingFit()), CPU, valued=True)
    own, reference, values = said(body)
    expected, _, _ = said(plain)
    assert torch.equal(own, expected)
    assert torch.equal(reference, expected)
    assert torch.equal(values, torch.zeros_like(values))


def test_moving_one_network_moves_no_other(body) -> None:
    own, reference, values = said(body)
    moved(body, "policy")
    after = said(body)
    assert not torch.allclose(after[0], own, atol=1e-3)
    assert torch.equal(after[1], reference)
    assert torch.equal(after[2], values)
    moved(body, "head")
    before = said(body)[2]
    moved(body, "value")
    last = said(body)
    assert torch.equal(last[0], after[0])
    assert torch.equal(last[1], reference)
    assert not torch.allclose(last[2], before, atol=1e-4)


def test_the_reference_within_the_policys_block_leaves_the_policy_as_it_was(body) -> None:
    moved(body, "policy")
    own, reference, _ = said(body)
    with torch.no_grad(), body.policy() as policy:
        with body.reference() as frozen:
            assert torch.equal(answer_logits(frozen, work()), reference)
        assert torch.equal(answer_logits(policy, work()), own)


def test_a_block_that_fails_leaves_the_body_as_it_was(body) -> None:
    moved(body, "policy")
    moved(body, "value")
    own, reference, _ = said(body)
    for block in (body.value, body.reference):
        with pytest.raises(RuntimeError, match="in the block"), block():
            raise RuntimeError("in the block")
        after = said(body)
        assert torch.equal(after[0], own)
        assert torch.equal(after[1], reference)


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_the_ratio_is_1_at_a_steps_first_update(job, recompute) -> None:
    fit = TrainingFit(lora=LoRAConfig(r=4, dropout=0.5), recompute=recompute)
    body = SharedBody(replace(job, fit=fit), CPU, valued=True)
    moved(body, "policy")
    with torch.no_grad(), body.policy() as policy:
        before = answer_logits(policy, work())
    said(body)
    with body.policy() as policy:
        assert torch.equal(answer_logits(policy, work()), before)


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_gradients_reach_the_networks_own_weights_alone(job, recompute) -> None:
    fit = replace(job.fit, recompute=recompute)
    body = SharedBody(replace(job, fit=fit), CPU, valued=True)
    moved(body, "head")

    def touched() -> set[str]:
        named = body.trained.items()
        return {n for n, m in named if any(p.grad is not None for p in m.parameters())}

    with body.value() as value:
        value(work()).sum().backward()
    assert touched() == {"value", "head"}
    body.trained.zero_grad()
    with body.policy() as policy:
        answer_logits(policy, work()).logsumexp(-1).sum().backward()
    assert touched() == {"policy"}
    frozen = {id(p) for p in body.trained.parameters()}
    assert all(p.grad is None for p in body._body.parameters() if id(p) not in frozen)


def test_gradients_are_the_same_with_activations_computed_again(job) -> None:
    found: list[list[torch.Tensor]] = []
    for recompute in ("never", "always"):
        body = SharedBody(replace(job, fit=replace(job.fit, recompute=recompute)), CPU, valued=True)
        moved(body, "policy")
        moved(body, "head")
        moved(body, "value")
        with body.value() as value:
            value(work()).sum().backward()
        with body.policy() as policy:
            answer_logits(policy, work()).logsumexp(-1).sum().backward()
        found.append([p.grad.clone() for p in body.trained.parameters() if p.grad is not None])
    assert found[0]
    for plain, again in zip(*found, strict=True):
        assert torch.allclose(plain, again, atol=1e-6)


def test_the_sampler_reads_merged_weights_and_the_body_keeps_its_bits(job, body, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    moved(body, "policy")
    own, reference, _ = said(body)
    weights = RolloutWeights(job, tmp_path / "rollout")
    weights.write(body.weights(), body.config)
    weights.write(body.weights(), body.config)
    after = said(body)
    assert torch.equal(after[0], own)
    assert torch.equal(after[1], reference)
    read: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "rollout")
    assert torch.allclose(answer_logits(read, work()), own, atol=1e-5)
    assert not torch.allclose(answer_logits(read, work()), reference, atol=1e-3)
    names = {path.name for path in (tmp_path / "rollout").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def test_adapters_begin_alike_with_the_same_seed_and_otherwise_not(job) -> None:
    one, same, other = (
        SharedBody(each, CPU, valued=False).trained.state_dict()
        for each in (job, job, replace(job, seed=12))
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_reference_of_its_own_is_not_the_body(job, tmp_path) -> None:
    from trainings import make_model

    first = make_model(tmp_path / "first", seed=5)
    body = SharedBody(replace(job, reference=Path(first)), CPU, valued=False)
    with torch.no_grad(), body.policy() as policy, body.reference() as reference:
        own, other = answer_logits(policy, work()), answer_logits(reference, work())
    assert not torch.allclose(own, other, atol=1e-3)
