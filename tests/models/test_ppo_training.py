"""Real PPO on the tiny models: its rows agree, and kills lose nothing.

The child starts as in the loop, samples with transformers, and is killed by SIGKILL.
"""

from pathlib import Path

import pytest
from trainings import PPO, ppo_job, sha256, starts, told_steps

from lpfloop.policies.engines.canary import read_canary
from lpfloop.policies.online.truncation_penalty import apply_rule
from lpfloop.policies.trainers.step_files import (
    draws_of_step,
    prompts_of_step,
    read_prompts,
    read_step,
    step_folder,
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
    """An uninterrupted training."""
    folder = tmp_path_factory.mktemp("whole")
    job = ppo_job(folder, policy=tiny_policy, reward=tiny_reward)
    return train(job, log=folder / "train.log")


def test_a_steps_rows_agree(whole) -> None:
    work = whole.output.parent
    prompts = read_prompts([work.parent / "prompts.parquet"])
    for step in range(1, STEPS + 1):
        tables = read_step(work, step)
        candidates = from_table(Candidate, tables[Candidate])
        rewards = from_table(Reward, tables[Reward])
        rollouts = from_table(Rollout, tables[Rollout])
        job = ppo_job(work.parent, policy=work, reward=work).online
        assert job is not None
        asked = [prompts[i] for i in prompts_of_step(len(prompts), 11, step=step, rollouts=8)]
        expected = [d.candidate_id for d in draws_of_step(job, step, asked)]
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
        expected = apply_rule(scores, ended, "below", PPO.missing_eos_penalty)
        assert [rollout.reward for rollout in rollouts] == pytest.approx(expected, abs=1e-6)
        told = {s.metric: s.value for s in from_table(Statistic, tables[Statistic])}
        assert told["missing_eos/count"] == len(ended) - sum(ended)
        assert told == told_steps(work)[step - 1]
        assert told["logprob_gap"] < 1e-5
        if step == 1:  # the policy equals the reference, with values of zero
            assert [r.kl for r in rollouts] == pytest.approx([0.0] * 8, abs=1e-5)
            assert [r.value for r in rollouts] == [0.0] * 8
    rows = read_canary(work)
    assert rows
    assert any(row.logprob_before != row.logprob_after for row in rows)


def test_resume_after_sigkill(whole, tmp_path, tiny_policy, tiny_reward, monkeypatch) -> None:
    job = ppo_job(tmp_path, policy=tiny_policy, reward=tiny_reward)
    log = tmp_path / "train.log"
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#3:kill")
    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=log, checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=log, checkpoint_minutes=0)
    assert starts(job.output) == [0, 2]
    assert resumed.metrics == whole.metrics
    for name in ("model.safetensors", "config.json"):
        assert sha256(resumed.output / name) == sha256(whole.output / name)
    for step in range(1, STEPS + 1):
        names = sorted(p.name for p in step_folder(job.output, step).iterdir())
        assert len(names) == 5  # four tables and a manifest
        for name in names:
            other = step_folder(whole.output.parent, step) / name
            assert sha256(step_folder(job.output, step) / name) == sha256(other)


@pytest.mark.slow
def test_publishing_keeps_steps(whole, tmp_path, tiny_policy, tiny_reward, monkeypatch) -> None:
    """It publishes a policy every two steps, and is killed while saving one and the last."""
    from safetensors.torch import load_file

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


def test_untrainable_jobs(tmp_path, tiny_policy, tiny_reward) -> None:
    short = PPO.model_copy(update={"max_length": 24})
    job = ppo_job(tmp_path / "short", policy=tiny_policy, reward=tiny_reward, settings=short)
    with pytest.raises(TrainingError, match="6 prompts"):
        train(job, log=tmp_path / "train.log")
