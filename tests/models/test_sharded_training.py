"""A training with weights, gradients and moments sharded over processes by FSDP2.

Two processes on a CPU, by gloo: the same files for the launcher, the same libraries as on GPUs.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from trainings import DPO, dpo_job, killed_at, make_world, same, starts

from lpfloop.policies.trainers import launch
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = [pytest.mark.model, pytest.mark.slow]

HELPERS = Path(__file__).parent.parent / "helpers"
FSDP2 = TrainingFit(sharding="fsdp2")
STEPS = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make accelerate shard models on a CPU, too."""
    plain_argv = launch.argv

    def argv(job: TrainJob) -> list[str]:
        plain = plain_argv(job)
        return ["fsdp_on_cpu" if a == "lpfloop.policies.train_worker" else a for a in plain]

    monkeypatch.setenv("PYTHONPATH", ":".join([str(HELPERS), *filter(None, sys.path)]))
    monkeypatch.setattr(launch, "argv", argv)


def short_job(world: Path, output: Path, **changes: Any) -> TrainJob:
    """Return a job of two steps in two processes."""
    job = dpo_job(world, output)
    settings = DPO.model_copy(update={"epochs": STEPS * DPO.batch_size / 96, **changes})
    return replace(job, processes=2, settings=settings)


def test_resume_after_sigkill(
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    plain = train(short_job(world, tmp_path / "plain"), log=tmp_path / "plain.log")
    request.getfixturevalue("as_on_gpus")
    whole, cut = (replace(short_job(world, tmp_path / n), fit=FSDP2) for n in ("whole", "cut"))
    log = tmp_path / "train.log"
    divided = train(whole, log=log, checkpoint_minutes=0)
    killed_at(monkeypatch, cut, log, "trainer.checkpoint.sealed")
    resumed = train(cut, log=log, checkpoint_minutes=0)
    assert starts(cut.output) == [0, 1]
    assert same(resumed, divided)
    names = ("loss", "grad_norm", "rewards/chosen", "logps/chosen")
    for mine, theirs in zip(divided.history, plain.history, strict=True):
        assert [mine[n] for n in names] == pytest.approx([theirs[n] for n in names], abs=1e-5)
    weights = [load_file(r.output / "model.safetensors") for r in (divided, plain)]
    for name, tensor in weights[1].items():
        assert weights[0][name].allclose(tensor, atol=1e-6)
