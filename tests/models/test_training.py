"""Training changes the weights, resumes bit-exactly, and never returns an unfinished result.

The models are tiny and random, the trainer is TRL in a separate process: seconds a run.
"""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import DPO, dpo_job, make_model, make_world, sha256, starts

from lpfloop.policies.trainers.checkpoints import newest_whole
from lpfloop.policies.trainers.job import TrainingError, TrainJob, job_identity
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.work_folder import TrainerProgress, parse_row, read_steps

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def uninterrupted(world: Path, tmp_path_factory: pytest.TempPathFactory):
    """A DPO job run without interruption: the job, its result, and the reported progress."""
    work = tmp_path_factory.mktemp("uninterrupted")
    seen: list[TrainerProgress] = []
    job = dpo_job(world, work / "work")
    log = work / "train.log"
    return job, train(job, log=log, on_progress=seen.append, checkpoint_minutes=0), seen


def test_dpo_raises_the_margin(
    uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]],
):
    job, result, seen = uninterrupted
    assert [p.step for p in seen] == list(range(1, 49))
    assert seen[0].max_steps == result.steps == 48
    assert abs(seen[0].metrics["rewards/margins"]) < 1e-4
    assert result.metrics["rewards/margins"] > 0.5
    assert result.metrics["rewards/accuracies"] > 0.9
    assert [step["step"] for step in result.history] == list(range(1, 49))
    for name in ("loss", "learning_rate", "grad_norm", "logps/chosen", "num_tokens"):
        assert [step[name] for step in result.history] == [p.metrics[name] for p in seen]
    rows = json.loads((job.output / "result.json").read_text())["rows"]
    assert rows == 96


def test_a_finished_model(
    tmp_path: Path, world: Path, uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]]
):
    job, result, _ = uninterrupted
    # lpfloop does not run it again.
    assert train(job, log=tmp_path / "train.log").metrics == result.metrics
    assert not (tmp_path / "train.log").exists() or not (tmp_path / "train.log").read_text()
    names = {p.name for p in result.output.iterdir()}
    assert names == {p.name for p in (world / "model").iterdir()}
    for name in names - {"config.json", "model.safetensors"}:
        assert sha256(result.output / name) == sha256(world / "model" / name), name


def test_resume_after_sigkill(
    tmp_path: Path,
    world: Path,
    uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]],
    monkeypatch: pytest.MonkeyPatch,
):
    job = dpo_job(world, tmp_path / "work")
    # The training is not over yet, even if this process looks late.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#12:stop")

    def kill(progress: TrainerProgress) -> None:
        if progress.step == 9:
            rows = (job.output / "metrics.jsonl").read_text().splitlines()
            start = next(r for r in map(parse_row, rows) if r and r["event"] == "start")
            os.kill(start["pid"], signal.SIGKILL)

    with pytest.raises(TrainingError, match="killed by SIGKILL") as e:
        train(job, log=tmp_path / "train.log", on_progress=kill, checkpoint_minutes=0)
    assert e.value.kind == "killed"
    identity = job_identity((job.output / "job.json").read_bytes())
    newest = newest_whole(job.output / "checkpoints", identity)
    assert newest is not None
    (newest / "optimizer.pt").unlink()
    older = newest_whole(job.output / "checkpoints", identity)
    assert older is not None
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=tmp_path / "train.log")
    assert starts(job.output) == [0, int(older.name.removeprefix("checkpoint-"))]
    reference = uninterrupted[1]
    weights = "model.safetensors"
    assert sha256(resumed.output / weights) == sha256(reference.output / weights)
    assert [s.step for s in read_steps(job.output / "metrics.jsonl")] == list(range(1, 49))
    assert resumed.metrics == reference.metrics
    assert resumed.history == reference.history


def test_a_loss_that_is_not_finite(tmp_path: Path, world: Path):
    import torch
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(world / "model", model)
    weights = load_file(model / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = torch.inf
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    job = replace(dpo_job(world, tmp_path / "work"), model=model)
    with pytest.raises(TrainingError, match="not finite at step 1") as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "diverged"
    assert not (job.output / "result.json").exists()


def test_unchanged_weights_are_refused(tmp_path: Path, world: Path):
    reference = make_model(tmp_path / "reference", seed=1)
    settings = DPO.model_copy(update={"learning_rate": 1e-300, "epochs": 0.1})
    job = replace(dpo_job(world, tmp_path / "work"), reference=reference, settings=settings)
    seen: list[TrainerProgress] = []
    with pytest.raises(TrainingError, match="1e-300") as e:
        train(job, log=tmp_path / "train.log", on_progress=seen.append)
    assert e.value.kind == "unchanged"
    # A reference equal to the policy would make every reward zero before the first step.
    assert abs(seen[0].metrics["rewards/chosen"]) > 1e-3
