"""Real GRPO, RLOO and online DPO: they learn to raise the reward, and kills lose nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest
from trainings import group_job, make_online_world, rewarded, sha256, starts, told_steps

from lpfloop.policies.online.numerics import leave_one_out, relative_advantages
from lpfloop.policies.trainers.job import Method, read_job
from lpfloop.policies.trainers.step_files import (
    read_answers,
    read_step,
    step_folder,
    write_judged,
)
from lpfloop.policies.trainers.train_model import TrainingError, TrainJob, train
from lpfloop.stores.frames import as_frame
from lpfloop.stores.records import Candidate, Pair, Reward, Rollout, Statistic
from lpfloop.stores.schemas import Row

pytestmark = pytest.mark.model

METHODS: tuple[Method, ...] = ("grpo", "rloo", "online_dpo")
STEPS, GROUP = 6, 8
LETTERS = """
def score(prompts, texts):
    return [sum(c.isascii() and c.isalpha() for c in t) / 8 for t in texts]
"""
"""Random tokens are letters one time in five, so the policy easily finds rewarded answers."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_online_world(tmp_path_factory.mktemp("groups"))


def made(world: Path, output: Path, method: Method, **settings: object) -> TrainJob:
    chosen: dict[str, object] = {
        "prompts_per_step": 4,
        "group": GROUP,
        "batch_size": 4 if method == "online_dpo" else 16,
        "micro_batch_size": 4,
        "max_steps": STEPS,
        "learning_rate": 1e-2,
        "missing_eos": "none",
    }
    return rewarded(group_job(world, output, method, **(chosen | settings)), LETTERS)


@pytest.fixture(scope="module", params=METHODS)
def whole(
    world: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> TrainJob:
    """An uninterrupted training."""
    folder = tmp_path_factory.mktemp("whole")
    job = made(world, folder / "work", request.param)
    train(job, log=folder / "log")
    return job


def rows(job: TrainJob, step: int, noun: type[Row]) -> pl.DataFrame:
    return as_frame(read_step(job.output, step)[noun])


def numbers(job: TrainJob, step: int) -> Mapping[str, float]:
    return dict(rows(job, step, Statistic)["metric", "value"].iter_rows())


def test_rewarded_answers_rise(whole: TrainJob) -> None:
    rewards = [numbers(whole, step)["reward"] for step in range(1, STEPS + 1)]
    assert fmean(rewards[-2:]) > 1.25 * fmean(rewards[:2]), rewards


def test_a_steps_rows_agree(whole: TrainJob) -> None:
    candidates = rows(whole, 2, Candidate)
    assert candidates["candidate_id"].n_unique() == 4 * GROUP
    rollouts = rows(whole, 2, Rollout)
    assert rollouts["candidate_id"].to_list() == candidates["candidate_id"].to_list()
    assert rollouts["reward"].to_list() == rows(whole, 2, Reward)["score"].to_list()
    told = numbers(whole, 2)
    assert {told["groups/compared"], told["groups/alone"], told["unscored"]} == {4.0, 0.0}
    assert told["reward"] == pytest.approx(rollouts["reward"].mean())
    assert told["logprob_gap"] < 2e-4
    assert told == told_steps(whole.output)[1]
    # In the first step the policy equals the reference.
    assert rows(whole, 1, Rollout)["kl"].to_list() == pytest.approx([0.0] * 4 * GROUP, abs=1e-5)


def test_each_answer_is_compared_with_its_group(whole: TrainJob) -> None:
    rollouts = rows(whole, 2, Rollout)
    groups = list(rollouts.iter_slices(GROUP))
    match whole.method:
        case "online_dpo":
            assert rollouts["advantage_mean"].null_count() == rollouts.height
            pairs = rows(whole, 2, Pair)
            uneven = [g for g in groups if g["reward"].n_unique() > 1]
            assert pairs["chosen_reward"].to_list() == [g["reward"].max() for g in uneven]
            assert pairs["rejected_reward"].to_list() == [g["reward"].min() for g in uneven]
            texts = dict(rows(whole, 2, Candidate)["candidate_id", "text"].iter_rows())
            for pair in pairs.to_dicts():
                assert pair["chosen"][0]["content"] == texts[pair["chosen_id"]]
                assert pair["rejected"][0]["content"] == texts[pair["rejected_id"]]
            return
        case "grpo":
            wanted = [
                value
                for g in groups
                for value in relative_advantages(g["reward"].to_list(), scaled=True)
            ]
        case _:
            shaped = (g["reward"] - 0.03 * g["kl"] for g in groups)
            wanted = [value for each in shaped for value in leave_one_out(each.to_list())]
    assert rollouts["advantage_mean"].to_list() == pytest.approx(wanted, abs=1e-5)
    assert Pair not in read_step(whole.output, 2)


@pytest.mark.parametrize("whole", ["grpo"], indirect=True)
def test_resume_after_sigkill(
    whole: TrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same function under the same path: it is part of the job's identity.
    job = replace(whole, output=tmp_path / "work")
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#4:kill")
    train(job, log=tmp_path / "log", retries=1, checkpoint_minutes=0)
    assert starts(job.output) == [0, 3]
    weights = "model/model.safetensors"
    assert sha256(job.folder(weights)) == sha256(whole.folder(weights))
    for step in range(1, STEPS + 1):
        for path in step_folder(whole.output, step).iterdir():
            assert sha256(step_folder(job.output, step) / path.name) == sha256(path)


class FakeParent:
    """Judges answers like a loop: the verifier by their length, the critic only some."""

    def __init__(self, job: TrainJob) -> None:
        self.job = job
        self.asked: list[int] = []

    def __call__(self, step: int) -> None:
        self.asked.append(step)
        answers = read_answers(self.job.output, step)
        judged = {
            answer.candidate_id: {
                "verifier": float(answer.completion_tokens % 2 == 0),
                "critic": None if place % 4 == 1 or place < 3 else 0.25 * (place % 3),
            }
            for place, answer in enumerate(answers)
        }
        write_judged(self.job.output, step, judged)


def judged_elsewhere(world: Path, output: Path) -> TrainJob:
    job = group_job(world, output, "grpo", max_steps=2, missing_eos="none")
    assert job.online is not None
    weights = {"verifier": 0.5, "critic": 2.0, "reward": 0.0}
    return replace(job, reward=None, online=replace(job.online, weights=weights))


def test_the_parent_judges_answers(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = judged_elsewhere(world, tmp_path / "work")
    parent = FakeParent(job)
    with pytest.raises(TrainingError, match="on_answers"):
        train(job, log=tmp_path / "log")
    # After a kill behind the second step, the trainer repeats that step without judging again.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#2:kill")
    train(job, log=tmp_path / "log", on_answers=parent, retries=1, checkpoint_minutes=0)
    assert read_job(job.folder("job.json")) == job
    assert starts(job.output) == [0, 1]
    assert parent.asked == [1, 2]
    rewards = rows(job, 1, Reward)
    # Three answers of the first group have no critic's score, and one answer of each other group.
    assert rewards["status"].to_list()[:6] == ["no_critic"] * 3 + ["scored"] * 2 + ["no_critic"]
    assert rewards["score"].null_count() == 5
    lengths = rows(job, 1, Candidate)["completion_tokens"].to_list()
    assert rewards["score"][3] == 0.5 * (lengths[3] % 2 == 0) + 2.0 * 0.0
    assert rewards["score"][4] == 0.5 * (lengths[4] % 2 == 0) + 2.0 * 0.25
    told = numbers(job, 1)
    # A lone answer in its group teaches nothing.
    assert (told["unscored"], told["groups/alone"], told["groups/compared"]) == (5, 1, 2)
    assert rows(job, 1, Rollout).height == 6
    assert 0 <= told["score/verifier"] <= 1


def test_no_answers_to_compare_is_refused(world: Path, tmp_path: Path) -> None:
    first = "def score(prompts, texts): return [1.0] + [None] * (len(texts) - 1)\n"
    job = rewarded(group_job(world, tmp_path / "work", "rloo"), first)
    with pytest.raises(TrainingError, match="steps 1 to 3") as told:
        train(job, log=tmp_path / "log")
    assert told.value.kind == "refused"
