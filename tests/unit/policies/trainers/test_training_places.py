"""Training in as many processes as there are GPUs for, each process seeing no other GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
from trainings import plain_job

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies import devices
from lpfloop.policies.trainers.accelerate_launch import child_environment
from lpfloop.policies.trainers.trainer_faults import TrainingError
from lpfloop.policies.trainers.trainer_job import job_json
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.training_places import (
    left_idle,
    processes_of,
)
from lpfloop.policies.trainers.training_requirements import require_training_places


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    gpus = tuple(devices.Gpu(handle=str(n), uuid=f"GPU-{n}f00") for n in range(4))
    monkeypatch.setattr(devices, "driver_gpus", lambda: gpus)
    monkeypatch.setattr(devices, "installed", lambda name: "1" if name == "vllm" else None)
    environ.pop(devices.VISIBLE, None)


def test_auto_processes(subtests):
    for batch_size, gpus, processes in [
        (64, 8, 8),
        (64, 6, 4),
        (2, 4, 1),
        (64, 1, 1),
        (64, 0, 1),
    ]:
        with subtests.test(batch_size=batch_size, gpus=gpus, processes=processes):
            settings = ("processes=auto", f"dpo.batch_size={batch_size}", "dpo.micro_batch_size=2")
            found = training(*settings)
            assert processes_of(found, found.dpo, gpus) == processes
            assert bool(left_idle(found, found.dpo, gpus)) == (processes < gpus)


def test_nodes(subtests):
    for nodes, batch_size, gpus, processes in [
        (2, 64, 8, 16),
        (2, 12, 8, 6),
        (2, 64, 0, 2),
    ]:
        with subtests.test(nodes=nodes, batch_size=batch_size, gpus=gpus, processes=processes):
            over = (f"nodes={nodes}", "launcher=srun", "dpo.micro_batch_size=2", "processes=auto")
            found = training(*over, f"dpo.batch_size={batch_size}")
            assert processes_of(found, found.dpo, gpus) == processes
            assert bool(left_idle(found, found.dpo, gpus)) == (processes < nodes * gpus)


@pytest.mark.usefixtures("four")
def test_visible_gpus(subtests, tmp_path: Path):
    plain = plain_job(tmp_path)
    for chosen, processes, shown in [
        ("auto", 1, "0"),
        ("auto", 4, "0,1,2,3"),
        ((2, 3), 1, "2"),
        ((3, 1), 2, "3,1"),
    ]:
        with subtests.test(devices=chosen, processes=processes, shown=shown):
            job = replace(plain, processes=processes, fit=TrainingFit(devices=chosen))
            assert child_environment(job)[devices.VISIBLE] == shown


@pytest.mark.usefixtures("four")
def test_visible_by_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    environ[devices.VISIBLE] = "3,1"
    job = replace(plain_job(tmp_path), fit=TrainingFit(devices=(1,)))
    assert child_environment(job)[devices.VISIBLE] == "1"
    assert job_json(job) == job_json(replace(job, fit=TrainingFit()))
    with pytest.raises(TrainingError, match="3 processes"):
        child_environment(replace(job, processes=3, fit=TrainingFit()))


@pytest.mark.usefixtures("four")
def test_refused_places() -> None:
    small = "dpo.micro_batch_size=2"
    require_training_places(training("processes=4", "sharding=fsdp2", small), ["dpo"])
    with pytest.raises(ConfigError, match="batch_size=16"):
        require_training_places(training("processes=4"), ["dpo"])
    with pytest.raises(ConfigError, match=r"training.processes=5: each needs a GPU"):
        require_training_places(training("processes=5"), ["dpo"])
    with pytest.raises(ConfigError, match="no GPU 4"):
        require_training_places(training("devices=[4]"), ["dpo"])
