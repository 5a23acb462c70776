"""Reference rewards and the next-token loss inside real online trainings, killed and resumed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from online_jobs import make_online_world, quark_job
from rollouts import PPO, ppo_job, referenced, told_steps, write_prompts
from trainings import sha256, starts, write_demonstrations

from lpfloop.policies.online.missing_end import ruled
from lpfloop.policies.trainers.next_token import METRIC
from lpfloop.policies.trainers.step_files import (
    ReferenceReward,
    read_prompts,
    read_step,
    step_folder,
)
from lpfloop.policies.trainers.train_model import TrainingError, TrainResult, train
from lpfloop.policies.trainers.trainer_job import SupervisedSet, TrainJob
from lpfloop.stores.records import Candidate, Reward, Rollout
from lpfloop.stores.schemas import from_table

pytestmark = pytest.mark.model

STEPS, WEIGHT = 4, 0.3
PENALTY = PPO.missing_eos_penalty
RELATIVE = PPO.model_copy(
    update={"reference_reward": True, "whiten_advantages": "none", "missing_eos": "replace"}
)
Make = Callable[[Path], TrainJob]


def besides(job: TrainJob, folder: Path) -> TrainJob:
    """Let a job learn people's answers, too."""
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
def make_quark(tmp_path_factory: pytest.TempPathFactory) -> Make:
    world = make_online_world(tmp_path_factory.mktemp("quark"))
    referenced(world / "prompts.parquet")

    def make(folder: Path) -> TrainJob:
        folder.mkdir(exist_ok=True)
        return besides(quark_job(world, folder / "work", reference_reward=True), folder)

    return make


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: pytest.TempPathFactory, make_ppo: Make) -> tuple[TrainJob, TrainResult]:
    folder = tmp_path_factory.mktemp("whole")
    job = make_ppo(folder)
    return job, train(job, log=folder / "train.log")


@pytest.fixture(scope="module")
def quark(
    tmp_path_factory: pytest.TempPathFactory, make_quark: Make
) -> tuple[TrainJob, TrainResult]:
    folder = tmp_path_factory.mktemp("whole")
    job = make_quark(folder)
    return job, train(job, log=folder / "train.log")


def rows(job: TrainJob, step: int) -> tuple[list[Reward], list[Rollout]]:
    tables = read_step(job.output, step)
    return from_table(Reward, tables[Reward]), from_table(Rollout, tables[Rollout])


def references(job: TrainJob) -> Mapping[str, ReferenceReward]:
    asked = read_prompts(job.data)
    return {a.prompt_id: a.reference for a in asked if a.reference is not None}


def test_ppos_rewards_are_differences_and_the_lake_keeps_the_raw_ones(ppo) -> None:
    job, _ = ppo
    known = references(job)
    for step in range(1, STEPS + 1):
        for reward, rollout in zip(*rows(job, step), strict=True):
            reference = known[rollout.prompt_id]
            # The rule for answers without an end holds for both sides.
            baseline = reference.score if reference.ended else -PENALTY
            raw = rollout.reward + baseline
            assert raw == pytest.approx(reward.score, abs=1e-6) or raw == pytest.approx(-PENALTY)


def test_the_numbers_of_a_step_tell_raw_and_reference_rewards_apart(ppo, quark) -> None:
    for job, _ in (ppo, quark):
        for step, told in enumerate(told_steps(job.output), 1):
            own = [rollout.reward for rollout in rows(job, step)[1]]
            assert told["reward"] == pytest.approx(sum(own) / len(own), abs=1e-6)
            difference = told["reward/raw"] - told["reward/reference"]
            assert told["reward"] == pytest.approx(difference, abs=1e-6)
            assert told["reward/std"] > 0


def test_quark_sorts_by_the_difference(quark) -> None:
    job, _ = quark
    known = references(job)
    scored, rollouts = rows(job, 1)
    both = zip(scored, rollouts, strict=True)
    differences = [(r.score or 0.0) - known[rollout.prompt_id].score for r, rollout in both]
    candidates = from_table(Candidate, read_step(job.output, 1)[Candidate])
    ended = [candidate.finish_reason == "stop" for candidate in candidates]
    expected = ruled(differences, ended, "below")
    assert [rollout.reward for rollout in rollouts] == pytest.approx(expected)
    ordered = [r.reward for r in sorted(rows(job, 1)[1], key=lambda r: r.quantile or 0)]
    assert min(ordered[:2]) >= max(ordered[2:])


def test_the_next_token_loss_is_told_and_falls(ppo, quark) -> None:
    for job, result in (ppo, quark):
        told = [step[METRIC] for step in told_steps(job.output)]
        assert told[-1] < told[0]
        assert result.metrics[METRIC] == pytest.approx(sum(told) / STEPS)


def test_ppos_loss_is_the_sum_of_its_terms(ppo) -> None:
    for told in told_steps(ppo[0].output):
        own = told["loss/policy"] + PPO.vf_coef * told["loss/value"]
        assert told["loss"] == pytest.approx(own + WEIGHT * told[METRIC], abs=1e-5)


@pytest.mark.crash
@pytest.mark.parametrize("method", ["ppo", "quark"])
def test_killed_after_a_step_it_ends_bit_equal(
    method: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, whole = request.getfixturevalue(method)
    job = request.getfixturevalue(f"make_{method}")(tmp_path)
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


def test_prompts_without_reference_rewards_are_refused(
    tmp_path: Path, tiny_policy: Path, tiny_reward: Path
) -> None:
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward, settings=RELATIVE)
    assert write_prompts(tmp_path / "prompts.parquet") == job.data[0]
    with pytest.raises(TrainingError, match="the reward of a reference answer"):
        train(job, log=tmp_path / "train.log")
