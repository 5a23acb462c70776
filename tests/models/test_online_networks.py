"""Networks that share a body: each is active within its block only, and leaves it unchanged."""

from dataclasses import replace

import pytest
import torch
from trainings import PPO, make_online_world, ppo_job

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.online.networks import Networks, SeparateNetworks
from lpfloop.policies.online.shared_body import SharedBody
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.sequences import Pass, Spoken, answer_logits, passes
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = [pytest.mark.model, pytest.mark.cuda]

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
    """The job's networks at the start of a training."""
    return SharedBody(job, torch.get_default_device(), valued=True)


def work() -> Pass:
    """Return a pass over two answers."""
    (one,) = passes(SPOKEN, range(2), 2, torch.get_default_device())
    return one


def said(networks: Networks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the outputs of policy, reference and value model for two answers."""
    with torch.no_grad():
        with networks.policy() as policy:
            own = answer_logits(policy, work())
        with networks.reference() as reference:
            other = answer_logits(reference, work())
        with networks.value() as value:
            values = value(work())
    return own, other, values


def moved(networks: Networks, name: str) -> None:
    """Change the weights of one of the trained networks."""
    with torch.no_grad():
        for weight in networks.trained[name].parameters():
            noise = torch.randn(
                weight.shape, generator=torch.Generator(torch.get_default_device()).manual_seed(1)
            )
            weight.add_(0.1 * noise)


@pytest.mark.usefixtures("one_thread")
def test_beginning(job, body) -> None:
    plain = SeparateNetworks(
        replace(job, fit=TrainingFit()), torch.get_default_device(), valued=True
    )
    own, reference, values = said(body)
    expected, _, _ = said(plain)
    # On a GPU the frozen body is bfloat16, and the plain policy float32.
    close = 0.0 if own.device.type == "cpu" else 0.1
    torch.testing.assert_close(own, expected, atol=close, rtol=0)
    assert torch.equal(reference, own)
    assert torch.equal(values, torch.zeros_like(values))


def test_networks_move_alone(body) -> None:
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


def test_ratio_of_first_update(job):
    fit = TrainingFit(lora=LoRAConfig(r=4, dropout=0.5), gradient_checkpointing="always")
    body = SharedBody(replace(job, fit=fit), torch.get_default_device(), valued=True)
    moved(body, "policy")
    with torch.no_grad(), body.policy() as policy:
        before = answer_logits(policy, work())
    said(body)
    with body.policy() as policy:
        assert torch.equal(answer_logits(policy, work()), before)


def test_gradients_stay_apart(job):
    fit = replace(job.fit, gradient_checkpointing="always")
    body = SharedBody(replace(job, fit=fit), torch.get_default_device(), valued=True)
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
