"""Training over several nodes equals training on one, and leaves no process on any node.

All nodes are on this machine, with one process each, connected by gloo: a step of a fake Slurm
that starts its tasks here.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nodes import allocate
from safetensors.torch import load_file
from trainings import DPO, dpo_job, make_world, starts

from lpfloop.policies.trainers import launch
from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.work_folder import TrainerProgress

pytestmark = [pytest.mark.model, pytest.mark.slow]

STEPS = 6
LONG = 48
"""Steps of a training to be killed, enough to be unfinished at a late look."""
SRUN = TrainingFit(nodes=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


def short_job(world: Path, output: Path, steps: int = STEPS, **changes: Any) -> TrainJob:
    """Return a job of a few steps in one process, with these changes."""
    job = dpo_job(world, output)
    settings = DPO.model_copy(update={"epochs": steps * DPO.batch_size / 96})
    return replace(job, settings=settings, **changes)


def of(job: TrainJob) -> list[int]:
    """Return the process ids of a job, on all nodes."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(job.output) in command and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def ended(job: TrainJob, within_s: float = 90.0) -> bool:
    """Return whether all processes of the job end soon."""
    deadline = time.monotonic() + within_s
    while of(job) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not of(job)


def rank(job: TrainJob, number: int) -> int:
    """Return the process of a rank of the job."""
    for pid in of(job):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={number}".encode() in environment:
            return pid
    raise AssertionError(f"no rank {number}")


def killer(job: TrainJob) -> Callable[[TrainerProgress], None]:
    """Return a function that kills the second rank of a job once, at its first checkpoint."""
    killed: list[int] = []

    def kill(progress: TrainerProgress) -> None:
        if progress.step > 1 and not killed:
            killed.append(rank(job, 1))
            os.kill(killed[0], signal.SIGKILL)

    return kill


def near(one: TrainResult, other: TrainResult, within: float = 1e-5) -> None:
    """Compare two trainings of the same batches: steps and weights."""
    names = ("loss", "grad_norm", "rewards/chosen", "logps/chosen")
    for mine, theirs in zip(one.history, other.history, strict=True):
        assert [mine[n] for n in names] == pytest.approx(
            [theirs[n] for n in names], rel=1e-3, abs=1e-4
        )
    first, second = (load_file(r.output / "model.safetensors") for r in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.allclose(second[name], atol=within), name


@pytest.mark.usefixtures("allocation")
def test_slurm_same_weights(world: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    alone = train(short_job(world, tmp_path / "alone"), log=log)
    job = short_job(world, tmp_path / "nodes", processes=2, fit=SRUN)
    over = train(job, log=log, checkpoint_minutes=0)
    near(over, alone)
    assert ended(job)
    told = json.loads((job.output / "accelerate.json").read_text())
    assert (told["num_machines"], told["num_processes"]) == (2, 2)


@pytest.mark.crash
@pytest.mark.usefixtures("allocation")
def test_killed_rank_ends_all(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last bits of the weights depend on the number of threads, and each node has all of them.
    monkeypatch.setattr(launch, "threads_here", lambda _processes=1: 1)
    log = tmp_path / "train.log"
    whole, cut = (
        short_job(world, tmp_path / name, LONG, processes=2, fit=SRUN) for name in ("whole", "cut")
    )
    uninterrupted = train(whole, log=log, checkpoint_minutes=0)

    with pytest.raises(TrainingError) as error:
        train(cut, log=log, on_progress=killer(cut), checkpoint_minutes=0)
    assert error.value.kind in ("killed", "failed")
    assert ended(cut)
    # Now on one machine: the place of a training is no part of its identity.
    resumed = train(replace(cut, fit=TrainingFit()), log=log)
    assert len(starts(cut.output)) == 2
    assert starts(cut.output)[1] > 0
    first, second = (r.output / "model.safetensors" for r in (resumed, uninterrupted))
    assert first.read_bytes() == second.read_bytes()
