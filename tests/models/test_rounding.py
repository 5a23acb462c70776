"""A policy keeps its training when lpfloop publishes it in fewer bits."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainings import make_model, make_world, sft_job
from transformers import AutoModelForCausalLM

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.online.networks import SeparateNetworks
from lpfloop.policies.trainers.adapters import computing_type, published_type
from lpfloop.policies.trainers.job import TrainingError, TrainJob, write_job
from lpfloop.policies.trainers.rounding import rounded_at_random
from lpfloop.policies.trainers.rows import chat_of
from lpfloop.policies.trainers.trained_model import (
    Trained,
    assemble_model,
    check_weights,
    conversations,
    drop_master,
    update_survival,
)
from lpfloop.policies.trainers.training_fit import MASTER, SURVIVAL, TrainingFit, master_of
from lpfloop.policies.trainers.trl_trainer import load_model, load_trained

pytestmark = pytest.mark.model
HALF = TrainingFit(publish="bfloat16")


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_mean_of_rounded_weights(kind):
    weights = torch.linspace(-0.05, 0.05, 101)
    rounded = torch.stack([rounded_at_random(weights, kind, seed).float() for seed in range(2000)])
    spacing = (weights.abs() * torch.finfo(kind).eps).clamp(min=1e-7)
    assert ((rounded - weights).abs() <= spacing).all()
    assert ((rounded.mean(0) - weights).abs() <= 0.06 * spacing).all()


@pytest.mark.cuda
def test_weights_that_the_type_has():
    largest = torch.finfo(torch.bfloat16).max
    weights = torch.tensor([0.0, -0.0, 1.0, -1.5, largest, -largest, float("inf"), 3e38])
    for kind in (torch.bfloat16, torch.float32):
        exact = weights.to(kind)
        assert torch.equal(rounded_at_random(exact.float(), kind, 1), exact)
    tiny = torch.full((1000,), -1e-41)
    assert (rounded_at_random(tiny, torch.bfloat16, 1) <= 0).all()


def test_seed_decides():
    weights = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    one, again, other = (rounded_at_random(weights, torch.bfloat16, seed) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("world"))
    make_model(folder / "half", dtype="bfloat16")
    return folder


def trained(world: Path, work: Path, fit: TrainingFit, by: float) -> TrainJob:
    """Change each weight of a bfloat16 model by up to `by`, and assemble the published model."""
    job = replace(sft_job(world, work), model=world / "half", fit=fit)
    job.output.mkdir()
    model: Any = load_model(job, job.model)
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=draw).clamp(-1, 1))
    model.save_pretrained(job.folder("saved"))
    assemble_model(job, job.folder("saved"))
    return job


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_master_weights_are_kept(world: Path, tmp_path: Path):
    job = trained(world, tmp_path / "one", HALF, 1e-4)
    published, master = weights(job.folder("model")), weights(job.folder("model") / MASTER)
    assert {t.dtype for t in published.values()} == {torch.bfloat16}
    assert {t.dtype for t in master.values()} == {torch.float32}
    for name, weight in master.items():
        assert torch.allclose(published[name].float(), weight, rtol=2**-7, atol=1e-38)
    following = replace(job, model=job.folder("model"), output=tmp_path / "two")
    write_job(following)
    read = following.folder("job.json").read_text()
    assert str(job.folder("model") / MASTER / "model.safetensors") in read
    begins: Any = load_trained(following)
    for name, weight in begins.named_parameters():
        assert torch.equal(weight, master[name])


def test_online_networks_begin_with_master_weights(world: Path, tmp_path: Path):
    """The sampler gets them rounded to nearest, as the trainer's passes round them."""
    first = trained(world, tmp_path / "one", HALF, 1e-4)
    job = replace(first, model=first.folder("model"), output=tmp_path / "two")
    job.output.mkdir()
    networks = SeparateNetworks(job, torch.device("cpu"), valued=False)
    master = weights(first.folder("model") / MASTER)
    with networks.policy() as policy, networks.reference() as reference:
        for name, weight in policy.named_parameters():
            assert torch.equal(weight, master[name])
        kind = computing_type(job)
        for name, weight in reference.named_parameters():
            assert torch.equal(weight, master[name].to(kind))
    for name, weight in networks.weights().items():
        assert torch.equal(weight, master[name].bfloat16())


def test_rounding_trains_nothing(world: Path, tmp_path: Path):
    first = trained(world, tmp_path / "one", HALF, 1e-4)
    second = replace(first, model=first.folder("model"), output=tmp_path / "two", seed=9)
    second.output.mkdir()
    shutil.copytree(master_of(second.model), second.folder("saved"))
    assemble_model(second, second.folder("saved"))
    told = Trained(steps=1, max_steps=1, rows=1, metrics={}, seconds={})
    check_weights(first, told)
    with pytest.raises(TrainingError) as error:
        check_weights(second, told)
    assert error.value.kind == "unchanged"


def test_adapters_begin_with_published_weights(world: Path, tmp_path: Path):
    first = trained(world, tmp_path / "one", HALF, 1e-4)
    lora = TrainingFit(lora=LoRAConfig(r=4), publish="bfloat16")
    job = replace(first, model=first.folder("model"), output=tmp_path / "two", fit=lora)
    published = weights(job.model)
    for name, weight in load_trained(job).named_parameters():
        assert torch.equal(weight.float(), published[name].float())


def test_survival_without_an_update(world: Path, tmp_path: Path):
    assert update_survival(trained(world, tmp_path / "work", HALF, 0.0)) == {}


def test_master_weights_are_dropped(world: Path, tmp_path: Path):
    job = trained(world, tmp_path / "work", replace(HALF, keep_master=False), 1e-4)
    drop_master(job)
    assert master_of(job.folder("model")) == job.folder("model")


def learning(world: Path, work: Path, fit: TrainingFit, by: float) -> TrainJob:
    """Change each weight of a bfloat16 model by `by` towards the training answers, and assemble."""
    job = replace(sft_job(world, work), model=world / "half", fit=fit)
    job.output.mkdir()
    model: Any = load_model(job, job.model)
    chat = chat_of(job)
    for prompt, answer in (chat.split_answer(c) for c in conversations(job)):
        ids = torch.tensor([prompt + answer])
        labels = torch.tensor([[-100] * len(prompt) + answer])
        model(ids, labels=labels).loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.sub_(by * weight.grad.sign())
    model.save_pretrained(job.folder("saved"))
    assemble_model(job, job.folder("saved"))
    return job


def test_update_survives(world: Path, tmp_path: Path):
    job = learning(world, tmp_path / "work", HALF, 2e-5)
    assert update_survival(job)[SURVIVAL] == pytest.approx(1.0, abs=0.3)
    # Rounding to nearest, like PyTorch, leaves almost nothing.
    master = AutoModelForCausalLM.from_pretrained(job.folder("model") / MASTER)
    master.bfloat16().save_pretrained(job.folder("model"))
    assert update_survival(job)[SURVIVAL] < 0.5


def test_float32_loses_nothing(world: Path, tmp_path: Path):
    job = trained(world, tmp_path / "work", TrainingFit(publish="float32"), 1e-4)
    assert update_survival(job) == {SURVIVAL: 1.0}
    assert not (job.folder("model") / MASTER).exists()


def test_published_dtypes(world: Path, tmp_path: Path):
    job = sft_job(world, tmp_path / "work")
    here = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    assert published_type(job) == here
    assert published_type(replace(job, fit=TrainingFit(publish="float16"))) == torch.float16
    assert published_type(replace(job, method="reward")) == torch.float32
