"""A run commits reference rewards before training, and skips and counts prompts without one."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from online import STEPS, online_config, train_online
from rows import CANDIDATE
from world import Silent, write_prompts

import lpfloop.loop.stages.publish
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.daemon.progress import progress
from lpfloop.loop.data.filter_counts import KEPT
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.reward import FAILED, REFERENCE_UNSCORED, fates_of, reference_rewards
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.step_files import ReferenceReward, read_prompts
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Candidate, FinishReason, Reward

RELATIVE = "training.ppo.reference_reward=true"


def answered(name: str, finish: FinishReason, score: float | None) -> tuple[Candidate, Reward]:
    candidate = replace(CANDIDATE, candidate_id=f"c-{name}", prompt_id=name, finish_reason=finish)
    reward = Reward(
        candidate_id=f"c-{name}",
        prompt_id=name,
        iteration=1,
        reward_model="r",
        score=score,
        status="scored" if score is not None else "overlong",
    )
    return candidate, reward


def test_prompts_without_reward_say_why():
    answers, rewards = zip(
        answered("whole", "stop", 1.5),
        answered("cut", "length", -0.5),
        answered("failed", "failed", 0.1),
        answered("long", "stop", None),
        strict=True,
    )
    assert fates_of(answers, rewards) == {
        KEPT: ["whole", "cut"],
        FAILED: ["failed"],
        REFERENCE_UNSCORED: ["long"],
    }
    assert reference_rewards(answers, rewards) == {
        "whole": ReferenceReward(score=1.5, ended=True),
        "cut": ReferenceReward(score=-0.5, ended=False),
    }


def test_a_run_scores_references_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    jobs: list[dict[str, ReferenceReward | None]] = []

    def note(job: TrainJob, _step: int) -> None:
        jobs.append({a.prompt_id: a.reference for a in read_prompts(job.data)})

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train_online, before=note))
    config = online_config(write_prompts(tmp_path), RELATIVE)
    job = Job(config=config, lake=tmp_path, name="a")
    for _ in range(2):
        run_loop(job, Silent(), StopSignal())
    reader = RunReader(run_folder(tmp_path, "a"))
    stages = {s.stage: s for s in progress(reader.journal, running=False) if s.iteration == 1}
    answers = reader.scan("candidates", iteration=1).filter(pl.col("kind") == "sample").collect()
    rewards = reader.scan("rewards", iteration=1).collect()
    (counted,) = (
        (reader.scan("filter_counts").filter(pl.col("filter") == "reference-reward").collect())
        .group_by("outcome")
        .agg(pl.col("count").sum())
        .iter_rows()
    )
    reader.close()
    assert stages["sample:reference"].done == stages["reference-reward"].done == 3
    assert stages["ppo"].done == STEPS
    assert counted == (KEPT, 6)
    scores = dict(answers.join(rewards, on="candidate_id")["prompt_id", "score"].iter_rows())
    assert len(scores) == 6
    expected = {name: ReferenceReward(score=score, ended=True) for name, score in scores.items()}
    assert len(jobs) == STEPS
    assert all(told == expected for told in jobs)


def test_two_normalisations_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="reference_reward takes the place of normalisation"):
        online_config(write_prompts(tmp_path), RELATIVE, "training.ppo.whiten_advantages=batch")
