"""PPO in two processes gives what one gives; if one of them dies, the training ends."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from allocation import allocate
from rollouts import PPO, ppo_job, told_steps
from trainings import sha256, starts
from waiting import wait_until

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.memory_folders import SHARED_MEMORY, folder_of
from lpfloop.policies.trainers.step_policies import finished_policy, step_job
from lpfloop.policies.trainers.train_model import (
    TrainerProgress,
    TrainingError,
    TrainJob,
    TrainResult,
    train,
)
from lpfloop.policies.trainers.training_fit import TrainingFit

pytestmark = [pytest.mark.model, pytest.mark.slow]

TWO = PPO.model_copy(update={"max_steps": 2, "inner_epochs": 1, "whiten_advantages": "batch"})


def made(folder: Path, policy: Path, reward: Path, *, fit: TrainingFit, processes: int) -> TrainJob:
    """Return a job of two steps of PPO for a number of processes."""
    job = ppo_job(folder, policy=policy, reward=reward, settings=TWO)
    return replace(job, processes=processes, fit=fit)


def same_weights(one: TrainResult, other: TrainResult) -> None:
    """Compare two trained models."""
    from safetensors.torch import load_file

    first, second = (load_file(r.output / "model.safetensors") for r in (one, other))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.sub(second[name]).abs().max() < 2e-5, name


@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_two_processes_give_what_one_gives(tmp_path, tiny_policy, tiny_reward, sharding) -> None:
    results: list[TrainResult] = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        fit = TrainingFit(sharding=sharding if processes == 2 else "none")
        job = made(folder, tiny_policy, tiny_reward, fit=fit, processes=processes)
        results.append(train(job, log=folder / "log"))
    one, two = (told_steps(result.output.parent) for result in results)
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, rel=1e-3, abs=1e-4)
    assert two[0]["kl"] == pytest.approx(0, abs=1e-5)
    same_weights(*results)


def test_two_nodes_give_what_one_process_gives(
    tmp_path, tiny_policy, tiny_reward, monkeypatch
) -> None:
    """The first process of the first node draws and scores for both."""
    allocate(monkeypatch, tmp_path / "bin", 2)
    results: list[TrainResult] = []
    for nodes in (1, 2):
        folder = tmp_path / str(nodes)
        fit = TrainingFit(nodes=nodes, launcher="srun" if nodes == 2 else "local")
        job = made(folder, tiny_policy, tiny_reward, fit=fit, processes=nodes)
        results.append(train(job, log=folder / "log"))
    one, two = (told_steps(result.output.parent) for result in results)
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, rel=1e-3, abs=1e-4)
    same_weights(*results)


def trainers(job: TrainJob) -> Iterator[tuple[int, str]]:
    """Yield pid and rank of each of a job's training processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().split("\0")
            environment = (folder / "environ").read_text().split("\0")
        except (OSError, ValueError):
            continue
        ranks = [each.removeprefix("RANK=") for each in environment if each.startswith("RANK=")]
        if ranks and str(job.folder("job.json")) in command:
            yield int(folder.name), ranks[0]


@pytest.mark.crash
def test_if_one_process_is_killed_all_end_and_the_training_goes_on_from_its_checkpoint(
    tmp_path, tiny_policy, tiny_reward, monkeypatch
) -> None:
    fit = TrainingFit(lora=LoRAConfig(r=4))
    job = made(tmp_path, tiny_policy, tiny_reward, fit=fit, processes=2)
    # However late this process looks, the training is not over.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#1:stop")
    killed: list[float] = []

    def kill(progress: TrainerProgress) -> None:
        """Kill the second process once, when a checkpoint is there; let the first go on."""
        if progress.step == 1 and not killed:
            ranks = {rank: pid for pid, rank in trainers(job)}
            first = psutil.Process(ranks["0"])
            wait_until(lambda: first.status() == psutil.STATUS_STOPPED, timeout_s=600)
            os.kill(ranks["1"], signal.SIGKILL)
            killed.append(time.monotonic())
            first.resume()

    with pytest.raises(TrainingError):
        train(job, log=tmp_path / "log", checkpoint_minutes=0, on_progress=kill)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    assert time.monotonic() - killed[0] < 60  # not when the other's patience is over
    assert not list(trainers(job))
    left = folder_of(SHARED_MEMORY / f"lpfloop-{os.getuid()}", job.output)
    assert not left.exists(), "the killed trainer's weights are still in memory"
    result = train(job, log=tmp_path / "log")
    assert result.steps == 2
    assert starts(job.output)[0] == 0


def test_a_divided_training_is_resumed_with_the_same_numbers(
    tmp_path, tiny_policy, tiny_reward, monkeypatch
) -> None:
    """Killed after the second step, it goes on from the checkpoint of the first."""
    results: list[TrainResult] = []
    for name in ("whole", "killed"):
        fit = TrainingFit(sharding="fsdp2")
        job = made(tmp_path / name, tiny_policy, tiny_reward, fit=fit, processes=2)
        each = job.settings.model_copy(update={"publish_every": 1})
        job = replace(job, settings=each)
        if name == "killed":
            monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#2:kill")
        results.append(train(job, log=tmp_path / name / "log", retries=1, checkpoint_minutes=0))
    work = results[1].output.parent
    assert starts(work) == [0, 1]
    parts = work / "checkpoints" / "checkpoint-1" / "pytorch_model_fsdp_0"
    assert len(list(parts.glob("*.distcp"))) == 2, "each process writes its part"
    whole, killed = (r.output / "model.safetensors" for r in results)
    assert sha256(whole) == sha256(killed)
    first, again = (
        finished_policy(step_job(replace(job, output=r.output.parent), 1)) for r in results
    )
    assert first is not None
    assert again is not None
    assert first.name == again.name
    assert sha256(first / "model.safetensors") != sha256(whole)
