"""The sampler on separate GPUs, or on the trainer's: GPUs that the child sees, and their order."""

from dataclasses import replace
from pathlib import Path

import pytest
from models import show_gpus
from trainings import ppo_job

from lpfloop.configs.section import Devices
from lpfloop.policies.devices import VISIBLE, visible_gpus
from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.launch import engine_in_trainer, environment, is_shared
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.workers.places import local_groups


def job(folder: Path, training: Devices, sampling: Devices, *, processes: int = 1) -> TrainJob:
    """Return a job that trains and samples on these GPUs."""
    made = ppo_job(folder, policy=folder, reward=folder)
    assert made.online is not None
    engine = made.online.engine.model_copy(update={"devices": sampling})
    online = replace(made.online, engine=engine)
    return replace(made, online=online, fit=TrainingFit(devices=training), processes=processes)


PLACES = [
    # All GPUs sample, and the first one also trains.
    ("auto", 1, "auto", "0,1,2,3", [True, False, False, False]),
    ((0,), 1, (1, 2, 3), "0,1,2,3", [False] * 3),
    ((2, 3), 2, (0, 1), "2,3,0,1", [False, False]),
    ((3, 2), 2, (2, 1), "3,2,1", [True, False]),
    # A training on one of two GPUs leaves the other one to the sampler.
    ((1, 0), 1, (0,), "1,0", [False]),
    ("auto", 4, (1,), "0,1,2,3", [True]),
]


def test_gpus_of_trainer_and_sampler(monkeypatch, environ, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, *["80 GiB"] * 4)
    outside = visible_gpus()
    for training, processes, sampling, seen, shared in PLACES:
        environ.pop(VISIBLE, None)
        made = job(tmp_path, training, sampling, processes=processes)
        assert environment(made)[VISIBLE] == seen
        environ[VISIBLE] = seen
        groups = local_groups(engine_in_trainer(made, made.online.engine))
        assert [is_shared(group, made) for group in groups] == shared
        wanted = range(4) if sampling == "auto" else sampling
        assert [group.gpus[0].uuid for group in groups] == [outside[n].uuid for n in wanted]


def test_a_missing_gpu_is_refused(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "80 GiB")
    with pytest.raises(TrainingError, match=r"policy\.engine\.devices"):
        environment(job(tmp_path, "auto", (1,)))
