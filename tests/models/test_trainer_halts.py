"""A training saves at intervals and on request to end, and resumes to the same weights."""

import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from trainings import dpo_job, make_world, same, starts

from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.work_folder import (
    CACHE,
    STEPS,
    TrainerProgress,
    new_lines,
    parse_row,
    read_orders,
)

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainJob, TrainResult]:
    """An uninterrupted training of eight steps that never saves."""
    folder = tmp_path_factory.mktemp("world")
    job = dpo_job(make_world(folder), folder / "work")
    job = replace(job, settings=job.settings.model_copy(update={"epochs": 1 / 3}))
    result = train(job, log=folder / "train.log", checkpoint_minutes=1e9)
    assert saved(job) == set()
    return job, result


@pytest.mark.crash
def test_halted_twice_same_bits(
    whole: tuple[TrainJob, TrainResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job, log = replace(whole[0], output=tmp_path / "work"), tmp_path / "train.log"
    # The training is not over yet, even if this process looks late; no save is due after the
    # orders.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#2:stop")
    seen: list[int] = []

    def see(progress: TrainerProgress) -> None:
        seen.append(progress.step)

    prepared: list[dict[Path, int]] = []
    for _ in range(2):
        least = seen[-1] + 2 if seen else 2
        going_on = threading.Thread(target=let_go_on, args=(job,), daemon=True)
        going_on.start()
        with pytest.raises(TrainingError) as end:
            train(
                job,
                log=log,
                on_progress=see,
                is_to_end=partial(reached, seen, least),
                checkpoint_minutes=0,
            )
        going_on.join()
        assert end.value.kind == "halted"
        assert saved(job) >= {f"checkpoint-{seen[-1]}"}
        prepared.append({p: p.stat().st_mtime_ns for p in job.folder(CACHE).rglob("*.arrow")})
    # The trainer did not compute the reference's log-probabilities again.
    assert prepared[0]
    assert prepared[0] == prepared[1]
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=log, on_progress=see)
    assert seen == list(range(1, 9))  # the trainer repeated no step
    assert len(starts(job.output)) == 3
    assert same(resumed, whole[1])
    assert resumed.history == whole[1].history


def let_go_on(job: TrainJob) -> None:
    """Continue a training that stopped itself with SIGSTOP, after lpfloop asked it to end."""

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


def reached(seen: list[int], step: int) -> bool:
    """Return whether the training reported a step."""
    return bool(seen) and seen[-1] >= step


def test_saving_keeps_weights(whole: tuple[TrainJob, TrainResult], tmp_path: Path):
    job = replace(whole[0], output=tmp_path / "work")
    often = train(job, log=tmp_path / "train.log", checkpoint_minutes=1e-9)
    assert saved(job) == {"checkpoint-6", "checkpoint-7"}
    assert same(often, whole[1])
    assert often.history == whole[1].history


def saved(job: TrainJob) -> set[str]:
    """The checkpoints of a job that has ended."""
    return {p.name for p in job.folder("checkpoints").glob("checkpoint-*")}
