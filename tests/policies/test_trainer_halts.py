"""A training saves by the clock and when it is asked to end, and goes on to the same weights."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from trainings import DIE, dpo_job, make_world, plain_job, same, scripted, starts
from waiting import ended, wait_until

from lpfloop.policies.trainers.prepared_rows import CACHE
from lpfloop.policies.trainers.train_model import (
    TrainerProgress,
    TrainingError,
    TrainJob,
    train,
)
from lpfloop.policies.trainers.trainer_orders import Orders, Pace, read_orders, write_orders
from lpfloop.policies.trainers.trainer_steps import STEPS, new_lines, parse_row


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_checkpoint_is_due_so_long_after_the_last_was_finished(tmp_path: Path):
    clock = Clock()
    pace = Pace(tmp_path, clock)
    write_orders(tmp_path, Orders(checkpoint_s=60.0))
    turns = []
    for clock.now in (1.0, 59.9, 60.0):
        turns.append(pace.turn())
    clock.now = 100.0  # it took 40 seconds to save
    pace.saved()
    for clock.now in (101.0, 159.9, 160.0):
        turns.append(pace.turn())
    assert turns == ["go on", "go on", "save"] * 2


def test_orders_hold_from_the_next_step_on_and_without_any_there_are_ten_minutes(tmp_path: Path):
    clock = Clock()
    pace = Pace(tmp_path, clock)
    assert read_orders(tmp_path) == Orders(checkpoint_s=600.0, end=False)
    clock.now = 599.0
    assert pace.turn() == "go on"
    write_orders(tmp_path, Orders(checkpoint_s=30.0))
    assert pace.turn() == "save"
    write_orders(tmp_path, Orders(end=True))
    assert pace.turn() == "end"


AGREEING = """
import sys, pathlib, torch
from lpfloop.policies.train_worker import agreed
from lpfloop.policies.trainers.trainer_orders import Orders, Pace, write_orders
rank, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
)
# What the second process sees for itself is another thing, and must not matter.
own = folder / str(rank)
own.mkdir()
pace = Pace(own)
for orders in [(Orders(), Orders(end=True)), (Orders(checkpoint_s=0), Orders()),
               (Orders(end=True), Orders())]:
    write_orders(own, orders[rank])
    print(agreed(pace, torch.device("cpu")))
"""


@pytest.mark.model
def test_of_several_processes_the_first_decides_for_all(tmp_path: Path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", AGREEING, str(rank), str(tmp_path)],
            env={**os.environ, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [process.communicate(timeout=600)[0].splitlines() for process in processes]
    assert told == [["go on", "save", "end"]] * 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.model
@pytest.mark.crash
def test_asked_to_end_again_and_again_it_ends_bit_equal_and_loses_no_step(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job, log = dpo_job(world, tmp_path / "work"), tmp_path / "train.log"
    job = replace(job, settings=job.settings.model_copy(update={"epochs": 2}))
    # However late this process looks, the training is not over; after the orders no save is due.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#2:stop")
    seen: list[int] = []

    def see(progress: TrainerProgress) -> None:
        seen.append(progress.step)

    prepared: list[dict[Path, int]] = []
    for _ in range(2):
        least = seen[-1] + 2 if seen else 2
        going_on = threading.Thread(target=let_go_on, args=(job,))
        going_on.start()
        with pytest.raises(TrainingError, match=r"^training was interrupted after step") as end:
            train(
                job,
                log=log,
                on_progress=see,
                is_to_end=partial(reached, seen, least),
                checkpoint_minutes=0,
            )
        going_on.join()
        assert end.value.kind == "halted"
        last = seen[-1]
        assert str(end.value) == (
            f"training was interrupted after step {last} of 48; "
            f"it goes on from its checkpoint after step {last}"
        )
        prepared.append({p: p.stat().st_mtime_ns for p in job.folder(CACHE).rglob("*.arrow")})
    assert last < 48
    # What the reference says of the rows was not computed again; once it is damaged, it is.
    assert prepared[0]
    assert prepared[0] == prepared[1]
    flip_a_bit(max(prepared[0], key=lambda path: path.stat().st_size))
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=log, on_progress=see)
    # Nothing was made twice.
    assert seen == list(range(1, 49))
    assert len(starts(job.output)) == 3
    straight = train(replace(job, output=tmp_path / "straight"), log=log)
    assert same(resumed, straight)
    assert resumed.history == straight.history
    assert [step["step"] for step in resumed.history] == list(range(1, 49))


def let_go_on(job: TrainJob) -> None:
    """Let a training that has stopped itself go on once it is to end."""

    stopped: list[psutil.Process] = []

    def is_to_end() -> bool:
        rows = map(parse_row, new_lines(job.folder(STEPS), 0)[0])
        pids: list[int] = [row["pid"] for row in rows if row and row["event"] == "start"]
        with suppress(psutil.NoSuchProcess):
            last = [psutil.Process(pid) for pid in pids[-1:]]
            stopped[:] = [each for each in last if each.status() == psutil.STATUS_STOPPED]
        return bool(stopped) and read_orders(job.output).end

    wait_until(is_to_end, timeout_s=600)
    stopped[0].resume()


def flip_a_bit(path: Path) -> None:
    """Damage a file in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def reached(seen: list[int], step: int) -> bool:
    """Whether a step was told of."""
    return bool(seen) and seen[-1] >= step


@pytest.mark.model
def test_how_often_it_saves_changes_no_weight(world: Path, tmp_path: Path):
    job, log = dpo_job(world, tmp_path / "work"), tmp_path / "train.log"
    job = replace(job, settings=job.settings.model_copy(update={"epochs": 1 / 3}))
    often = train(job, log=log, checkpoint_minutes=1e-9)
    assert saved(job) == {"checkpoint-6", "checkpoint-7"}
    other = replace(job, output=tmp_path / "other")
    never = train(other, log=log, checkpoint_minutes=1e9)
    assert saved(other) == set()
    assert same(often, never)
    assert often.history == never.history


def saved(job: TrainJob) -> set[str]:
    """The checkpoints of a job that has ended."""
    return {p.name for p in job.folder("checkpoints").glob("checkpoint-*")}


@pytest.mark.crash
def test_what_is_to_end_before_it_begins_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, "finish()")
    with pytest.raises(TrainingError, match="before its first step; it will begin again") as end:
        train(job, log=tmp_path / "train.log", is_to_end=lambda: True)
    assert end.value.kind == "halted"
    assert not tries.exists()


@pytest.mark.crash
def test_a_trainer_that_still_loads_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job, pid = plain_job(tmp_path), tmp_path / "pid"
    scripted(monkeypatch, job, f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); hang()")
    with pytest.raises(TrainingError, match="before its first step; it will begin again") as end:
        train(job, log=tmp_path / "train.log", is_to_end=lambda: written(pid))
    assert end.value.kind == "halted"
    wait_until(partial(ended, int(pid.read_text())))


@pytest.mark.crash
def test_one_that_dies_when_it_is_to_end_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job, pid = plain_job(tmp_path), tmp_path / "pid"
    die = f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); {DIE}"
    tries = scripted(monkeypatch, job, die, "finish()")
    with pytest.raises(TrainingError) as end:
        train(job, log=tmp_path / "log", retries=5, is_to_end=lambda: dead(pid))
    assert end.value.kind == "halted"
    assert tries.read_text() == "x"


def written(pid: Path) -> bool:
    """Whether a process has left its id."""
    return pid.exists() and bool(pid.read_text())


def dead(pid: Path) -> bool:
    """Whether the process that left its id has ended."""
    return written(pid) and ended(int(pid.read_text()))
