"""Reference rewards and the next-token loss inside real online trainings, killed and resumed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import (
    PPO,
    ppo_job,
    referenced,
    sha256,
    starts,
    told_steps,
    write_demonstrations,
    write_online_prompts,
)

from lpfloop.policies.trainers.job import SupervisedSet, TrainingError, TrainJob
from lpfloop.policies.trainers.next_token import METRIC
from lpfloop.policies.trainers.step_files import (
    ReferenceReward,
    read_prompts,
    read_step,
    step_folder,
)
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.stores.records import Reward, Rollout
from lpfloop.stores.schemas import from_table

pytestmark = pytest.mark.model

STEPS, WEIGHT = 4, 0.3
PENALTY = PPO.missing_eos_penalty
RELATIVE = PPO.model_copy(
    update={"reference_reward": True, "whiten_advantages": "none", "missing_eos": "replace"}
)
Make = Callable[[Path], TrainJob]


def besides(job: TrainJob, folder: Path) -> TrainJob:
    """Add people's answers to the training data of a job."""
    write_demonstrations(folder / "demonstrations.parquet", 12)
    learned = SupervisedSet(data=(folder / "demonstrations.parquet",), weight=WEIGHT, batch_size=5)
    return replace(job, supervised=learned)


@pytest.fixture(scope="module")
def make_ppo(tiny_policy: Path, tiny_reward: Path) -> Make:
    def make(folder: Path) -> TrainJob:
        job = ppo_job(folder, policy=tiny_policy, reward=tiny_reward, settings=RELATIVE)
        referenced(job.data[0])
        return besides(job, folder)

    return make


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: pytest.TempPathFactory, make_ppo: Make) -> tuple[TrainJob, TrainResult]:
    folder = tmp_path_factory.mktemp("whole")
    job = make_ppo(folder)
    return job, train(job, log=folder / "train.log")


def rows(job: TrainJob, step: int) -> tuple[list[Reward], list[Rollout]]:
    tables = read_step(job.output, step)
    return from_table(Reward, tables[Reward]), from_table(Rollout, tables[Rollout])


def references(job: TrainJob) -> Mapping[str, ReferenceReward]:
    asked = read_prompts(job.data)
    return {a.prompt_id: a.reference for a in asked if a.reference is not None}


def test_ppo_reward_differences(ppo) -> None:
    job, _ = ppo
    known = references(job)
    for step in range(1, STEPS + 1):
        for reward, rollout in zip(*rows(job, step), strict=True):
            reference = known[rollout.prompt_id]
            # The penalty of answers without an end token applies to both sides.
            baseline = reference.score if reference.ended else -PENALTY
            raw = rollout.reward + baseline
            assert raw == pytest.approx(reward.score, abs=1e-6) or raw == pytest.approx(-PENALTY)


def test_next_token_loss_falls(ppo) -> None:
    job, result = ppo
    told = [step[METRIC] for step in told_steps(job.output)]
    assert told[-1] < told[0]
    assert result.metrics[METRIC] == pytest.approx(sum(told) / STEPS)


@pytest.mark.crash
def test_resume_after_sigkill(ppo, make_ppo: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other, whole = ppo
    job = make_ppo(tmp_path)
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#3:kill")
    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=tmp_path / "train.log", checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=tmp_path / "train.log")
    assert starts(job.output) == [0, 2]
    assert resumed.metrics == whole.metrics
    name = "model.safetensors"
    assert sha256(resumed.output / name) == sha256(whole.output / name)
    for step in range(1, STEPS + 1):
        files = sorted(p.name for p in step_folder(job.output, step).iterdir())
        for name in files:
            again = step_folder(job.output, step) / name
            assert sha256(again) == sha256(step_folder(other.output, step) / name)


def test_missing_references(tmp_path: Path, tiny_policy: Path, tiny_reward: Path) -> None:
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward, settings=RELATIVE)
    assert write_online_prompts(tmp_path / "prompts.parquet") == job.data[0]
    with pytest.raises(TrainingError, match="the reward of a reference answer"):
        train(job, log=tmp_path / "train.log")
