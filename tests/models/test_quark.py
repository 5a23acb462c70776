"""Real Quark: a few steps of a tiny policy, killed and resumed."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from trainings import make_online_world, quark_job, sha256, starts

from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import train
from lpfloop.stores.frames import as_frame
from lpfloop.stores.records import Candidate, Rollout, Statistic
from lpfloop.stores.schemas import Row

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_online_world(tmp_path_factory.mktemp("online"))


def rows(job: TrainJob, step: int, noun: type[Row]) -> pl.DataFrame:
    return as_frame(read_step(job.output, step)[noun])


def numbers(job: TrainJob, step: int) -> Mapping[str, float]:
    return dict(rows(job, step, Statistic)["metric", "value"].iter_rows())


def test_each_step_learns_the_best_quarter(world: Path, tmp_path: Path):
    job = quark_job(world, tmp_path / "work")
    result = train(job, log=tmp_path / "log")
    assert result.steps == 4
    rollouts = rows(job, 1, Rollout)
    assert sorted(rollouts["quantile"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    ordered = rollouts.sort("quantile")["reward"].to_list()
    assert min(ordered[:2]) >= max(ordered[2:])
    # Before its first update the policy equals the reference, and later it stays near it.
    assert rollouts["kl"].to_list() == pytest.approx([0.0] * 8, abs=1e-5)
    assert numbers(job, 4)["kl"] > 0
    assert numbers(job, 1)["logprob_gap"] < 2e-4
    assert result.metrics["loss/nll"] > 0
    # Appendix B.2: the learning rate decays to 0 throughout training.
    rates = [numbers(job, step)["learning_rate"] for step in range(1, 5)]
    assert rates == pytest.approx([7.5e-4, 5e-4, 2.5e-4, 0.0])


def test_resume_after_sigkill(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = quark_job(world, tmp_path / "whole")
    train(job, log=tmp_path / "log")
    again = quark_job(world, tmp_path / "killed")
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#3:kill")
    train(again, log=tmp_path / "log", retries=1, checkpoint_minutes=0)
    assert starts(again.output) == [0, 2]
    weights = "model/model.safetensors"
    assert sha256(job.folder(weights)) == sha256(again.folder(weights))
    for step in range(1, 5):
        for noun in (Candidate, Rollout, Statistic):
            assert rows(job, step, noun).equals(rows(again, step, noun))
