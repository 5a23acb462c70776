"""A trainer killed at each boundary of a save ends, after as many resumes, with the same weights.

TRL itself trains here; the kills are SIGKILL, at failpoints that the child reads from its
environment.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from trainings import dpo_job, killed_at, make_world, same, sft_job, starts

from lpfloop.policies.trainers.train_model import TrainJob, train

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


# The place of each kill, and the step from which the run that follows sets out; None if the killed
# one had not begun. The first `file.rename` seals what is prepared, the second is that of a
# manifest, for the last two those of the steps' numbers and of result.json.
DPO_KILLS = [
    ("file.rename.before#1", None),
    ("trainer.checkpoint.saved#1", 0),
    ("file.rename.before#2", 0),
    ("trainer.checkpoint.sealed#1", 1),
    ("trainer.checkpoint.saved#1", 1),
    ("file.rename.after#2", 2),
    ("retired.rename.before#1", 3),
    ("trainer.model.saved", 15),
    ("trainer.result", 15),
    ("file.rename.before#2", 15),
    ("file.rename.before#3", 15),
]
SFT_KILLS = [
    ("file.rename.before#1", None),
    ("file.rename.before#2", 0),
    ("trainer.checkpoint.sealed#2", 2),
    ("trainer.result", 5),
]


@pytest.mark.slow
def test_dpo_killed_at_every_boundary_of_its_saves_ends_bit_equal(
    tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "train.log"
    job = short_dpo(world, tmp_path / "work")
    for place, _ in DPO_KILLS:
        killed_at(monkeypatch, job, log, place)
    resumed = train(job, log=log)
    assert starts(job.output) == [0, *(step for _, step in DPO_KILLS if step is not None)]
    kept = {p.name for p in (job.output / "checkpoints").glob("checkpoint-*")}
    assert kept == {"checkpoint-14", "checkpoint-15"}
    assert same(resumed, train(short_dpo(world, tmp_path / "other"), log=log))


@pytest.mark.crash
def test_sft_killed_in_its_saves_ends_bit_equal(
    tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "train.log"
    job = short_sft(world, tmp_path / "work")
    for place, _ in SFT_KILLS:
        killed_at(monkeypatch, job, log, place)
    resumed = train(job, log=log)
    assert starts(job.output) == [0, *(step for _, step in SFT_KILLS if step is not None)]
    assert same(resumed, train(short_sft(world, tmp_path / "other"), log=log))


@pytest.mark.crash
def test_a_save_cut_in_the_middle_is_not_resumed_from(
    tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "train.log"
    job = short_dpo(world, tmp_path / "work")
    killed_at(monkeypatch, job, log, "trainer.checkpoint.saved#2")
    # As a trainer leaves it that was killed while it wrote the optimizer's state.
    cut = job.output / "checkpoints" / "checkpoint-2"
    whole = (cut / "optimizer.pt").read_bytes()
    (cut / "optimizer.pt").write_bytes(whole[: len(whole) // 2])
    for name in ("scheduler.pt", "rng_state.pth", "trainer_state.json"):
        (cut / name).unlink()
    # The second run is killed by nobody: it is a retry of the same call.
    resumed = train(job, log=log, retries=1)
    assert starts(job.output) == [0, 1]
    assert same(resumed, train(short_dpo(world, tmp_path / "other"), log=log))
