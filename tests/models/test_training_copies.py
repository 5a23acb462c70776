"""After the loss of its machine, a training resumes from the checkpoint's copy in the bucket."""

import shutil
from pathlib import Path

import pytest
from trainings import (
    dpo_job,
    killed_at,
    make_online_world,
    make_world,
    quark_job,
    same,
    sha256,
    starts,
    write_checkpoint,
)

from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.run.training_copies import (
    COPIES,
    TrainingCopies,
    copies_of,
    copy_checkpoints,
)
from lpfloop.policies.trainers.checkpoints import is_whole, seal_checkpoint
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import train
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Rollout
from lpfloop.stores.takeover import take_over

pytestmark = pytest.mark.model

RUN, WORK = "a", "f" * 64


@pytest.fixture
def machine(bucket, tmp_path, environ):
    """Move to a machine of this name, which begins or takes over the run; return the open run."""
    stores = list[RunWriter]()

    def move(name: str) -> RunWriter:
        environ[STATE] = str(tmp_path / name)
        lake = lake_folder(f"s3://{bucket}/lake")
        if stores:
            folder = take_over(lake, RUN, force=True).folder
            stores.append(RunWriter(Journal(folder)))
        else:
            stores.append(RunWriter(Journal.create(run_folder(lake, RUN), {"config": "{}"})))
            stores[0].journal.keeper.take_snapshot()
        return stores[-1]

    yield move
    for store in stores:
        store.close()


def sealed(work: Path, step: int) -> Path:
    checkpoint = write_checkpoint(work / "checkpoints", step)
    (checkpoint / "rng_state.pth").write_bytes(f"random {step}".encode())
    seal_checkpoint(checkpoint, "job")
    return checkpoint


def copies(store: RunWriter) -> TrainingCopies:
    found = copies_of(store, store.folder / "work" / WORK)
    assert found is not None
    return found


def test_copy_deduplicates_files(machine):
    one = copies(machine("one"))
    for step in (4, 8):
        rows = one.work / "steps" / f"{step:04}"
        rows.mkdir(parents=True)
        (rows / "rollouts.parquet").write_bytes(f"rows {step}".encode())
        one.copy(sealed(one.work, step))
    held = one.bucket.sizes(COPIES)
    # Eight files of a checkpoint, the rows of two steps, and the list.
    assert len(held) == 8 + 2 + 1
    two = copies(machine("two"))
    assert two.fetch() == 8
    assert is_whole(two.work / "checkpoints" / "checkpoint-8", "job")
    assert not (two.work / "checkpoints" / "checkpoint-4").exists()
    assert [path.name for path in sorted((two.work / "steps").iterdir())] == ["0004", "0008"]


def test_damaged_copy_is_not_used(machine):
    one = copies(machine("one"))
    one.copy(sealed(one.work, 4))
    two = copies(machine("two"))
    spoiled = next(name for name in two.bucket.sizes(COPIES) if "/files/" in name)
    two.bucket.put(spoiled, b"spoiled")
    assert two.fetch() is None
    assert not list(two.work.iterdir())


@pytest.fixture
def moved(machine, tmp_path, monkeypatch):
    """Kill a job on one machine, finish it on another with other folders; return it."""

    def move(make, world: Path, place: str) -> TrainJob:
        store = machine("one")
        work = store.folder / "work" / WORK
        with copy_checkpoints(store, work, StopSignal()):
            killed_at(monkeypatch, make(world, work), tmp_path / "log", place)
        elsewhere = shutil.copytree(world, tmp_path / "elsewhere")
        shutil.rmtree(work)
        store = machine("two")
        there = make(elsewhere, store.folder / "work" / WORK)
        with copy_checkpoints(store, there.output, StopSignal()) as step:
            assert step
            train(there, log=tmp_path / "log")
        assert starts(there.output) == [step]
        return there

    return move


def test_resume_training_elsewhere(moved, tmp_path):
    world = make_world(tmp_path / "world")
    whole = train(dpo_job(world, tmp_path / "whole"), log=tmp_path / "log")
    job = moved(dpo_job, world, "trainer.checkpoint.sealed#20")
    assert same(train(job, log=tmp_path / "log"), whole)


@pytest.mark.slow
def test_resume_online_training_elsewhere(moved, tmp_path):
    world = make_online_world(tmp_path / "world")
    whole = quark_job(world, tmp_path / "whole")
    train(whole, log=tmp_path / "log")
    job = moved(quark_job, world, "trainer.step.written#3")
    weights = "model/model.safetensors"
    assert sha256(job.folder(weights)) == sha256(whole.folder(weights))
    for step in range(1, 5):
        for noun in (Candidate, Rollout):
            assert read_step(job.output, step)[noun].equals(read_step(whole.output, step)[noun])
