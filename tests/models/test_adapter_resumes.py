"""A training of adapters, or of bfloat16 weights, that is killed ends with the same bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
from trainings import killed_at, make_world, sft_job, starts

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.engines.canary import CANARY, read_canary
from lpfloop.policies.trainers.checkpoints import describe_files
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = pytest.mark.model

ADAPTED = TrainingFit(lora=LoRAConfig(r=4, dropout=0.1))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def six_steps(world: Path, output: Path) -> TrainJob:
    job = sft_job(world, output)
    return replace(job, settings=job.settings.model_copy(update={"epochs": 1.0}), fit=ADAPTED)


def published(result: TrainResult) -> object:
    work = result.output.parent
    return describe_files(result.output), (work / CANARY).read_text(), result.metrics


def test_resume_after_sigkill(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "train.log"
    job = six_steps(world, tmp_path / "work")
    killed_at(monkeypatch, job, log, "trainer.checkpoint.sealed#3")
    resumed = train(job, log=log)
    assert starts(job.output) == [0, 3]
    whole = train(six_steps(world, tmp_path / "other"), log=log)
    assert published(resumed) == published(whole)
    assert whole.metrics["loss"] < whole.history[0]["loss"]
    # lpfloop measures the canary on the published weights: its answers became likelier.
    assert all(row.logprob_after > row.logprob_before for row in read_canary(whole.output.parent))
