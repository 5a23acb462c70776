"""A real reward model training: it learns its pairs, and scoring reads it back."""

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainings import make_world, sha256, starts, write_pairs

from lpfloop.configs.methods import RewardTraining
from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.reward_trainer import parted_pairs
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.work_folder import STEPS, TrainerProgress, parse_row, read_steps

pytestmark = pytest.mark.model

SETTINGS = RewardTraining(
    learning_rate=1e-3, min_rate=0.1, warmup_ratio=0.0,
    batch_size=8, micro_batch_size=4, max_length=128, epochs=2.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def reward_job(world: Path, output: Path, **more: Any) -> TrainJob:
    parts = (world / "pairs-1.parquet", world / "pairs-2.parquet")
    return TrainJob(
        method="reward", model=world / "model", reference=None, data=parts, output=output,
        settings=SETTINGS, seed=2**40 + 7, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainJob, TrainResult]:
    work = tmp_path_factory.mktemp("trained")
    job = reward_job(world, work / "work")
    return job, train(job, log=work / "train.log")


def test_it_ranks_held_out_pairs(trained: tuple[TrainJob, TrainResult]):
    job, result = trained
    assert result.metrics["held_out/pairs"] == 9
    assert result.metrics["held_out/accuracy"] > 0.9
    assert result.metrics["accuracy"] > 0.9
    told = json.loads((job.output / "result.json").read_text())
    assert told["rows"] == 96 - 9
    steps = read_steps(job.output / STEPS)
    assert steps[0].metrics["loss"] == pytest.approx(math.log(2), abs=0.1)
    # The rate follows a cosine to a tenth of its peak.
    last = (1 + math.cos(math.pi * (len(steps) - 1) / len(steps))) / 2
    rates = [step.metrics["learning_rate"] for step in steps]
    assert (rates[0], rates[-1]) == pytest.approx((1e-3, 1e-3 * (0.1 + 0.9 * last)))
    config = json.loads((result.output / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert (result.output / "tokenizer.json").exists()


def test_prompts_are_held_out_whole(world: Path, tmp_path: Path):
    again = write_pairs(tmp_path / "again.parquet", 48)
    job = reward_job(world, tmp_path / "work")
    kept, aside = parted_pairs(replace(job, data=(*job.data, again)))
    asked = [{row["prompt"][0]["content"] for row in rows} for rows in (kept, aside)]
    assert not asked[0] & asked[1]
    assert len(kept) + len(aside) == 144
    assert 10 < len(aside) <= 14


def test_resume_after_sigkill(
    world: Path,
    tmp_path: Path,
    trained: tuple[TrainJob, TrainResult],
    monkeypatch: pytest.MonkeyPatch,
):
    job = reward_job(world, tmp_path / "work")
    # The training is not over yet, even if this process looks late.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#12:stop")

    def kill(progress: TrainerProgress) -> None:
        if progress.step == 9:
            rows = map(parse_row, (job.output / "metrics.jsonl").read_text().splitlines())
            os.kill(next(r["pid"] for r in rows if r and r["event"] == "start"), signal.SIGKILL)

    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=tmp_path / "log", on_progress=kill, checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=tmp_path / "log")
    first, again = starts(job.output)
    assert first == 0
    assert again >= 8
    assert resumed.history == trained[1].history
    assert resumed.metrics["held_out/accuracy"] == trained[1].metrics["held_out/accuracy"]
    weights = "model.safetensors"
    assert sha256(resumed.output / weights) == sha256(trained[1].output / weights)


def test_pairs_that_teach_nothing_are_refused(world: Path, tmp_path: Path):
    for update, key in (({"max_length": 16}, "16 tokens"), ({"margin": 1.0}, "scores")):
        settings = SETTINGS.model_copy(update=update)
        job = replace(reward_job(world, tmp_path / "work"), settings=settings)
        with pytest.raises(TrainingError, match=key):
            train(job, log=tmp_path / "log")
    for wrong in ({"min_rate": 0.1, "scheduler": "linear"}, {"template": "alpaca"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RewardTraining(**wrong)
