"""PPO in two processes gives the result of one process; if one of them dies, the training ends."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from trainings import PPO, ppo_job, starts, told_steps

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.shm_weights import folder_of
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.work_folder import TrainerProgress

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


def test_two_processes(subtests, tmp_path, tiny_policy, tiny_reward):
    for sharding in ["none", "fsdp2"]:
        with subtests.test(sharding=sharding):
            results: list[TrainResult] = []
            for processes in (1, 2):
                folder = tmp_path / f"{sharding}-{processes}"
                fit = TrainingFit(sharding=sharding if processes == 2 else "none")
                job = made(folder, tiny_policy, tiny_reward, fit=fit, processes=processes)
                results.append(train(job, log=folder / "log"))
            one, two = (told_steps(result.output.parent) for result in results)
            for alone, together in zip(one, two, strict=True):
                assert together == pytest.approx(alone, rel=1e-3, abs=1e-4)
            assert two[0]["kl"] == pytest.approx(0, abs=1e-5)
            same_weights(*results)


def trainers(job: TrainJob) -> Iterator[tuple[str, int]]:
    """Yield rank and pid of each of a job's training processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().split("\0")
            environment = (folder / "environ").read_text().split("\0")
        except (OSError, ValueError):
            continue
        ranks = [each.removeprefix("RANK=") for each in environment if each.startswith("RANK=")]
        if ranks and str(job.folder("job.json")) in command:
            yield ranks[0], int(folder.name)


def test_killed_process(tmp_path, tiny_policy, tiny_reward, monkeypatch) -> None:
    fit = TrainingFit(lora=LoRAConfig(r=4))
    job = made(tmp_path, tiny_policy, tiny_reward, fit=fit, processes=2)
    # The training is not over yet, even if this process looks late.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#1:stop")
    killed: list[int] = []

    def kill(progress: TrainerProgress) -> None:
        """Kill the second process once, at the first checkpoint; the first process continues."""
        if progress.step == 1 and not killed:
            ranks = dict(trainers(job))
            first = psutil.Process(ranks["0"])
            wait_until(lambda: first.status() == psutil.STATUS_STOPPED, timeout_s=600)
            os.kill(ranks["1"], signal.SIGKILL)
            killed.append(ranks["1"])
            first.resume()

    with pytest.raises(TrainingError):
        train(job, log=tmp_path / "log", checkpoint_minutes=0, on_progress=kill)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    assert killed
    assert not list(trainers(job))
    left = folder_of(job.output)
    assert not left.exists(), "the killed trainer's weights are still in memory"
    assert train(job, log=tmp_path / "log").steps == 2
    assert starts(job.output) == [0, 1]
