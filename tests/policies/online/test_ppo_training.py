"""PPO trains for real on the tiny models: its rows agree with one another, and kills undo nothing.

The child is started as by the loop, samples with transformers, and is killed by SIGKILL.
"""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rollouts import PPO, ppo_job, told_steps
from safetensors.torch import load_file
from trainings import sha256, starts

from lpfloop.policies.engines.canary import read_canary
from lpfloop.policies.online.missing_end import ruled
from lpfloop.policies.trainers.step_files import (
    drawn,
    read_prompts,
    read_step,
    step_folder,
    visited,
)
from lpfloop.policies.trainers.step_policies import finished_policy, step_job
from lpfloop.policies.trainers.train_model import TrainingError, TrainResult, train
from lpfloop.stores.records import Candidate, Reward, Rollout, Statistic
from lpfloop.stores.schemas import from_table

pytestmark = pytest.mark.model

STEPS = 4


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, tiny_policy: Path, tiny_reward: Path
) -> TrainResult:
    """A training that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    job = ppo_job(folder, policy=tiny_policy, reward=tiny_reward)
    return train(job, log=folder / "train.log")


def test_a_steps_rows_tell_of_the_same_rollouts(whole) -> None:
    work = whole.output.parent
    prompts = read_prompts([work.parent / "prompts.parquet"])
    for step in range(1, STEPS + 1):
        tables = read_step(work, step)
        candidates = from_table(Candidate, tables[Candidate])
        rewards = from_table(Reward, tables[Reward])
        rollouts = from_table(Rollout, tables[Rollout])
        job = ppo_job(work.parent, policy=work, reward=work).online
        assert job is not None
        asked = [prompts[i] for i in visited(len(prompts), 11, step=step, rollouts=8)]
        expected = [d.candidate_id for d in drawn(job, step, asked)]
        assert [c.candidate_id for c in candidates] == expected
        assert [r.candidate_id for r in rewards] == expected
        assert [r.candidate_id for r in rollouts] == expected
        for candidate, rollout in zip(candidates, rollouts, strict=True):
            assert candidate.kind == "rollout"
            assert rollout.tokens == candidate.completion_tokens
            assert rollout.logprob == pytest.approx(candidate.logprob, abs=1e-3)
            assert rollout.kl == pytest.approx(
                rollout.logprob - rollout.reference_logprob, abs=1e-4
            )
        ended = [candidate.finish_reason == "stop" for candidate in candidates]
        scores = [reward.score for reward in rewards if reward.score is not None]
        expected = ruled(scores, ended, "below", PPO.missing_eos_penalty)
        assert [rollout.reward for rollout in rollouts] == pytest.approx(expected, abs=1e-6)
        told = {s.metric: s.value for s in from_table(Statistic, tables[Statistic])}
        assert told["missing_eos/count"] == len(ended) - sum(ended)


def test_the_first_step_begins_at_the_reference_and_with_values_of_zero(whole) -> None:
    rollouts = from_table(Rollout, read_step(whole.output.parent, 1)[Rollout])
    assert [r.kl for r in rollouts] == pytest.approx([0.0] * 8, abs=1e-5)
    assert [r.value for r in rollouts] == [0.0] * 8


def test_a_steps_statistics_are_what_was_told_without_the_times(whole) -> None:
    work = whole.output.parent
    for step, told in enumerate(told_steps(work), 1):
        rows = from_table(Statistic, read_step(work, step)[Statistic])
        assert {r.metric: r.value for r in rows} == told
        assert {r.method for r in rows} == {"ppo"}


def test_the_engine_agrees_with_the_trainer_at_every_step(whole) -> None:
    assert max(told["logprob_gap"] for told in told_steps(whole.output.parent)) < 1e-5


def test_the_model_has_a_canary_of_its_last_rollouts(whole) -> None:
    rows = read_canary(whole.output.parent)
    assert rows
    assert any(row.logprob_before != row.logprob_after for row in rows)


@pytest.mark.crash
def test_killed_anywhere_it_ends_bit_equal(
    whole, tmp_path, tiny_policy, tiny_reward, monkeypatch
) -> None:
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward)
    log = tmp_path / "train.log"
    # Each with the step from which the run after it sets out.
    kills = [
        ("trainer.step.written#3", 2),
        ("trainer.step.written#1", 2),
        ("trainer.model.saved", 3),
    ]
    for place, _ in kills:
        monkeypatch.setenv("LPFLOOP_FAILPOINT", f"{place}:kill")
        with pytest.raises(TrainingError, match="killed by SIGKILL"):
            train(job, log=log, checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=log)
    assert starts(job.output) == [0, *(step for _, step in kills)]
    assert resumed.metrics == whole.metrics
    for name in ("model.safetensors", "config.json"):
        assert sha256(resumed.output / name) == sha256(whole.output / name)
    for step in range(1, STEPS + 1):
        names = sorted(p.name for p in step_folder(job.output, step).iterdir())
        assert len(names) == 5  # four tables and a manifest
        for name in names:
            other = step_folder(whole.output.parent, step) / name
            assert sha256(step_folder(job.output, step) / name) == sha256(other)


@pytest.mark.crash
def test_policies_on_the_way_change_no_step_and_are_the_same_after_a_kill(
    whole, tmp_path, tiny_policy, tiny_reward, monkeypatch
) -> None:
    settings = PPO.model_copy(update={"publish_every": 2})
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward, settings=settings)
    for place in ("trainer.step.saved", "trainer.model.saved"):
        monkeypatch.setenv("LPFLOOP_FAILPOINT", f"{place}:kill")
        with pytest.raises(TrainingError, match="killed by SIGKILL"):
            train(job, log=tmp_path / "log", checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    result = train(job, log=tmp_path / "log", checkpoint_minutes=0)
    assert starts(job.output) == [0, 1, 3]
    policy = finished_policy(step_job(job, 2))
    assert policy is not None
    state = load_file(job.folder("checkpoints") / "checkpoint-2" / "policy.safetensors")
    saved = load_file(policy / "model.safetensors")
    both = saved.keys() & state.keys()
    assert len(both) >= len(saved) - 1, "only an embedding that is tied has another name"
    assert all(saved[name].equal(state[name]) for name in both)
    assert sha256(result.output / "model.safetensors") == sha256(whole.output / "model.safetensors")
    assert result.metrics == whole.metrics
    for step in range(1, STEPS + 1):
        for path in step_folder(whole.output.parent, step).iterdir():
            assert sha256(step_folder(job.output, step) / path.name) == sha256(path)
    last, between = read_canary(job.output), read_canary(step_job(job, 2).output)
    assert [row.logprob_before for row in between] == [row.logprob_before for row in last]
    assert [row.logprob_after for row in between] != [row.logprob_after for row in last]


@pytest.mark.slow
def test_a_finished_training_whose_policy_on_the_way_is_damaged_is_made_again(
    tmp_path, tiny_policy, tiny_reward
) -> None:
    settings = PPO.model_copy(update={"publish_every": 1, "max_steps": 2})
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward, settings=settings)
    train(job, log=tmp_path / "log")
    policy = finished_policy(step_job(job, 1))
    assert policy is not None
    weights = policy / "model.safetensors"
    before = sha256(weights)
    weights.chmod(0o600)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    train(job, log=tmp_path / "log")
    assert starts(job.output) == [0, 0]
    assert sha256(weights) == before


def test_a_reward_model_of_another_family_is_refused(tmp_path, tiny_policy, tiny_reward) -> None:
    from trainings import make_model

    other = make_model(tmp_path / "other")
    job = ppo_job(tmp_path / "job", policy=other, reward=tiny_reward)
    with pytest.raises(TrainingError, match="another tokenizer than the policy"):
        train(job, log=tmp_path / "train.log")


def test_prompts_that_leave_no_room_are_refused(tmp_path, tiny_policy, tiny_reward) -> None:
    short = PPO.model_copy(update={"max_length": 24})
    job = ppo_job(tmp_path / "job", policy=tiny_policy, reward=tiny_reward, settings=short)
    with pytest.raises(TrainingError, match="not one of the 6 prompts leaves room"):
        train(job, log=tmp_path / "train.log")


def test_the_parts_of_the_prompts_are_read_as_they_are(whole) -> None:
    prompts = whole.output.parent.parent / "prompts.parquet"
    assert len(read_prompts([prompts])) == pq.read_metadata(prompts).num_rows
