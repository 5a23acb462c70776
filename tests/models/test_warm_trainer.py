"""A trainer that started before its job was known gives the result of a cold one."""

from contextlib import closing
from pathlib import Path

import pytest
from trainings import make_world, plain_job, same, sft_job

from lpfloop.policies.trainers import launch
from lpfloop.policies.trainers.process import WarmTrainer
from lpfloop.policies.trainers.train_model import train

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def test_same_model_as_cold(world, tmp_path):
    cold = train(sft_job(world, tmp_path / "cold"), log=tmp_path / "train.log")
    job, log = sft_job(world, tmp_path / "warm"), tmp_path / "train.log"
    with closing(WarmTrainer()) as warm:
        warm.start(launch.environment(job), log)
        assert warm.pid is not None
        result = train(job, log=log, warm=warm)
        assert warm.pid is None  # The job used the warm trainer.
    assert same(result, cold)


def test_one_process_waits(tmp_path):
    log, environment = tmp_path / "train.log", {"A": "1"}
    with closing(WarmTrainer()) as warm:
        assert warm.take(tmp_path / "job.json", environment, log) is None
        warm.start(environment, log)
        first = warm.pid
        warm.start(environment, log)
        assert warm.pid == first
        warm.start({"A": "2"}, log)
        assert warm.pid != first


@pytest.mark.parametrize("other", ["environment", "log"])
def test_other_place_starts_cold(world, tmp_path, other):
    job = sft_job(world, tmp_path / "work")
    environment, log = launch.environment(job), tmp_path / "train.log"
    with closing(WarmTrainer()) as warm:
        if other == "log":
            warm.start(environment, tmp_path / "other.log")
        else:
            warm.start(dict(environment) | {"A": "1"}, log)
        waiting = warm.pid
        assert warm.take(job.folder("job.json"), environment, log) is None
        assert warm.pid == waiting


def test_dead_process_is_not_taken(tmp_path):
    job, log = plain_job(tmp_path), tmp_path / "train.log"
    environment = launch.environment(job)
    with closing(WarmTrainer()) as warm:
        warm.start(environment, log)
        warm.close()
        assert warm.pid is None
        assert warm.take(job.folder("job.json"), environment, log) is None
