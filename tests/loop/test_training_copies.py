"""A training whose machine is lost goes on from the copy of its checkpoint in the bucket."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from online_jobs import make_online_world, quark_job
from s3 import bad_way
from trainings import dpo_job, killed_at, make_world, same, sha256, starts, write_checkpoint

from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.loop.run.training_copies import (
    COPIES,
    TrainingCopies,
    copied,
    copies_of,
    discard_copies,
)
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import TrainJob, train
from lpfloop.policies.trainers.trainer_checkpoints import is_whole, seal_checkpoint
from lpfloop.stores import heads
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.adoption import adopt
from lpfloop.stores.failpoints import armed
from lpfloop.stores.heads import AdoptedError
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Rollout

RUN, WORK = "a", "f" * 64
Move = Callable[[str], RunWriter]


@pytest.fixture
def machine(bucket, tmp_path, monkeypatch):
    """Move to a machine of this name, which begins the run or adopts it; return the open run."""
    stores = list[RunWriter]()

    def move(name: str) -> RunWriter:
        monkeypatch.setenv(STATE, str(tmp_path / name))
        lake = lake_folder(f"s3://{bucket}/lake")
        if stores:
            folder = adopt(lake, RUN, force=True).folder
            stores.append(RunWriter(Journal(folder)))
        else:
            stores.append(RunWriter(Journal.create(run_folder(lake, RUN), {"config": "{}"})))
            stores[0].journal.take_snapshot()
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


def test_a_copy_holds_the_checkpoint_and_what_lies_beside_it_and_what_is_equal_once(machine):
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


def test_a_damaged_copy_is_not_used(machine):
    one = copies(machine("one"))
    one.copy(sealed(one.work, 4))
    two = copies(machine("two"))
    spoiled = next(name for name in two.bucket.sizes(COPIES) if "/files/" in name)
    two.bucket.put(spoiled, b"spoiled")
    assert two.fetch() is None
    assert not list(two.work.iterdir())


def test_half_a_copy_does_not_count_and_the_one_before_stays(machine):
    one = copies(machine("one"))
    one.copy(sealed(one.work, 4))
    with armed({"training.copied": "enospc"}), pytest.raises(OSError, match="No space"):
        one.copy(sealed(one.work, 8))
    assert copies(machine("two")).fetch() == 4


def test_a_head_that_was_adopted_copies_nothing_more(machine):
    one = copies(machine("one"))
    one.copy(sealed(one.work, 4))
    two = copies(machine("two"))
    with pytest.raises(AdoptedError):
        one.copy(sealed(one.work, 8))
    assert two.fetch() == 4


@pytest.mark.parametrize("moment", ["training.copied", "object.delete.after"])
def test_a_head_that_is_adopted_while_it_copies_removes_nothing_of_the_next_one(
    moment, machine, monkeypatch
):
    monkeypatch.setattr(heads, "FEW", 1)
    one = copies(machine("one"))
    one.copy(sealed(one.work, 4))

    def overtake(_: str) -> None:
        two = copies(machine("two"))
        assert two.fetch() in {4, 8}
        two.copy(sealed(two.work, 12))

    checkpoint = sealed(one.work, 8)
    with armed({f"{moment}#1": overtake}), pytest.raises(AdoptedError):
        one.copy(checkpoint)
    assert copies(machine("three")).fetch() == 12


def test_a_head_that_was_adopted_discards_no_copies_of_the_next_one(machine):
    store = machine("one")
    two = copies(machine("two"))
    two.copy(sealed(two.work, 4))
    with pytest.raises(AdoptedError):
        discard_copies(store)
    two_store = machine("three")
    assert copies(two_store).fetch() == 4
    discard_copies(two_store)
    assert copies(two_store).fetch() is None


def test_a_training_is_copied_while_it_goes_on_and_at_its_end(machine):
    store = machine("one")
    work = store.folder / "work" / WORK
    with copied(store, work, StopSignal()) as step:
        assert step is None
        sealed(work, 4)
    with copied(store, work, StopSignal()):
        sealed(work, 8)
    store = machine("two")
    with copied(store, store.folder / "work" / WORK, StopSignal()) as step:
        assert step == 8


def stopped(store: RunWriter, drain_s: float, until: Callable[[], object]) -> None:
    """Seal a checkpoint, and stop its training at a moment, as if `drain_s` were over then."""
    work, stop = store.folder / "work" / WORK, StopSignal(drain_s=drain_s)
    with copied(store, work, stop):
        sealed(work, 4)
        until()
        stop.request()
        raise Stopped


def test_a_stop_whose_time_is_over_waits_for_no_copy(machine, s3_server, monkeypatch):
    store = machine("one")
    begun, over = threading.Event(), threading.Event()

    def held(method: str, path: str) -> None:
        if method == "PUT" and f"/{COPIES}/" in path:
            begun.set()
            over.wait(10)

    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        way.faults = held
        with pytest.raises(Stopped):
            stopped(store, 0.0, begun.wait)
        left = [thread for thread in threading.enumerate() if thread.name == "training copies"]
        assert left, "the copy that goes on was waited for"
        over.set()
        for thread in left:
            thread.join()
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)


def test_a_stop_with_time_left_copies_what_was_sealed_last(machine):
    with pytest.raises(Stopped):
        stopped(machine("one"), 600.0, lambda: None)
    assert copies(machine("two")).fetch() == 4


def killed_and_adopted(
    machine: Move,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: Callable[[Path, Path], TrainJob],
    world: Path,
    place: str,
) -> TrainJob:
    """Kill a job on one machine, finish it on another whose folders are others; return it."""
    store = machine("one")
    work = store.folder / "work" / WORK
    with copied(store, work, StopSignal()):
        killed_at(monkeypatch, job(world, work), tmp_path / "log", place)
    elsewhere = shutil.copytree(world, tmp_path / "elsewhere")
    shutil.rmtree(work)
    store = machine("two")
    there = job(elsewhere, store.folder / "work" / WORK)
    with copied(store, there.output, StopSignal()) as step:
        assert step
        train(there, log=tmp_path / "log")
    assert starts(there.output) == [step]
    return there


@pytest.mark.model
@pytest.mark.crash
def test_a_training_goes_on_elsewhere_and_ends_bit_equal(machine, tmp_path, monkeypatch):
    world = make_world(tmp_path / "world")
    whole = train(dpo_job(world, tmp_path / "whole"), log=tmp_path / "log")
    place = "trainer.checkpoint.sealed#20"
    job = killed_and_adopted(machine, tmp_path, monkeypatch, dpo_job, world, place)
    assert same(train(job, log=tmp_path / "log"), whole)


@pytest.mark.model
@pytest.mark.crash
def test_an_online_training_goes_on_elsewhere_with_the_rows_of_all_its_steps(
    machine, tmp_path, monkeypatch
):
    world = make_online_world(tmp_path / "world")
    whole = quark_job(world, tmp_path / "whole")
    train(whole, log=tmp_path / "log")
    place = "trainer.step.written#3"
    job = killed_and_adopted(machine, tmp_path, monkeypatch, quark_job, world, place)
    assert sha256(job.folder("model/model.safetensors")) == sha256(
        whole.folder("model/model.safetensors")
    )
    for step in range(1, 5):
        for noun in (Candidate, Rollout):
            assert read_step(job.output, step)[noun].equals(read_step(whole.output, step)[noun])
