"""A trainer killed at each boundary of a save ends, after as many resumes, with the same weights.

TRL itself trains here; the kills are SIGKILL, at failpoints that the child reads from its
environment.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from trainings import dpo_job, killed_at, make_world, same, sft_job, starts

from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import train

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def short_dpo(world: Path, output: Path) -> TrainJob:
    """Sixteen steps."""
    job = dpo_job(world, output)
    return replace(job, settings=job.settings.model_copy(update={"epochs": 2 / 3}))


def short_sft(world: Path, output: Path) -> TrainJob:
    """Six steps."""
    job = sft_job(world, output)
    return replace(job, settings=job.settings.model_copy(update={"epochs": 1.0}))


SFT_KILLS = [("file.rename.before#2", 0), ("trainer.result", 5)]
"""The place of each kill, and the first step of the run after it."""


@pytest.mark.crash
def test_sft_killed_in_saves(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "train.log"
    job = short_sft(world, tmp_path / "work")
    for place, _ in SFT_KILLS:
        killed_at(monkeypatch, job, log, place)
    resumed = train(job, log=log)
    assert starts(job.output) == [0, *(step for _, step in SFT_KILLS)]
    assert same(resumed, train(short_sft(world, tmp_path / "other"), log=log))


@pytest.mark.crash
def test_cut_save(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "train.log"
    job = short_dpo(world, tmp_path / "work")
    killed_at(monkeypatch, job, log, "trainer.checkpoint.saved#2")
    # A trainer that was killed while writing the optimizer's state leaves such a checkpoint.
    cut = job.output / "checkpoints" / "checkpoint-2"
    whole = (cut / "optimizer.pt").read_bytes()
    (cut / "optimizer.pt").write_bytes(whole[: len(whole) // 2])
    for name in ("scheduler.pt", "rng_state.pth", "trainer_state.json"):
        (cut / name).unlink()
    # Nothing kills the second run: it is a retry of the same call.
    resumed = train(job, log=log, retries=1)
    assert starts(job.output) == [0, 1]
    assert same(resumed, train(short_dpo(world, tmp_path / "other"), log=log))
