"""Training really trains, resumes bit-exactly, and never gives a result that is not one.

The models are tiny and random, the trainer is TRL itself in its own process: seconds a run.
"""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import (
    DPO,
    dpo_job,
    make_model,
    make_world,
    plain_job,
    sft_job,
    sha256,
    starts,
    write_checkpoint,
    write_pairs,
)

from lpfloop.policies.engines.canary import CANARY, read_canary
from lpfloop.policies.trainers.accelerate_launch import accelerate_settings, child_environment
from lpfloop.policies.trainers.train_model import (
    TrainerProgress,
    TrainingError,
    TrainJob,
    TrainResult,
    prepare,
    read_result,
    train,
)
from lpfloop.policies.trainers.trainer_checkpoints import (
    describe_files,
    newest_whole,
    seal_checkpoint,
)
from lpfloop.policies.trainers.trainer_history import write_history
from lpfloop.policies.trainers.trainer_job import job_identity, read_job
from lpfloop.policies.trainers.trainer_process import launch_argv
from lpfloop.policies.trainers.trainer_steps import parse_row, read_steps


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def uninterrupted(world: Path, tmp_path_factory: pytest.TempPathFactory):
    """A DPO job run in one go: the job, its result, and the progress that was told."""
    work = tmp_path_factory.mktemp("uninterrupted")
    seen: list[TrainerProgress] = []
    job = dpo_job(world, work / "work")
    log = work / "train.log"
    return job, train(job, log=log, on_progress=seen.append, checkpoint_minutes=0), seen


@pytest.mark.model
def test_dpo_raises_the_margin_of_its_pairs(
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


@pytest.mark.model
def test_a_finished_model_has_the_files_of_its_parent(
    world: Path, uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]]
):
    job, result, _ = uninterrupted
    names = {p.name for p in result.output.iterdir()}
    assert names == {p.name for p in (world / "model").iterdir()}
    for name in names - {"config.json", "model.safetensors"}:
        assert sha256(result.output / name) == sha256(world / "model" / name), name
    # After the last step the model itself follows.
    assert {p.name for p in (job.output / "checkpoints").glob("checkpoint-*")} == {
        "checkpoint-46", "checkpoint-47",
    }  # fmt: skip


@pytest.mark.model
def test_a_finished_job_is_not_run_again(
    tmp_path: Path, uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]]
):
    job, result, _ = uninterrupted
    again = train(job, log=tmp_path / "train.log")
    assert again.metrics == result.metrics
    assert not (tmp_path / "train.log").exists() or not (tmp_path / "train.log").read_text()


@pytest.mark.model
def test_a_killed_job_resumes_from_a_whole_checkpoint_only_and_ends_bit_equal(
    tmp_path: Path,
    world: Path,
    uninterrupted: tuple[TrainJob, TrainResult, list[TrainerProgress]],
    monkeypatch: pytest.MonkeyPatch,
):
    job = dpo_job(world, tmp_path / "work")
    # However late this process looks, the training is not over.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#12:stop")

    def kill(progress: TrainerProgress) -> None:
        if progress.step == 9:
            rows = (job.output / "metrics.jsonl").read_text().splitlines()
            start = next(r for r in map(parse_row, rows) if r and r["event"] == "start")
            os.kill(start["pid"], signal.SIGKILL)

    with pytest.raises(
        TrainingError, match=r"killed by SIGKILL .* after step \d+ of 48; log: "
    ) as e:
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


def logprob(model: Path, count: int) -> float:
    """The mean log-probability, per token, that a model gives the demonstrations."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    total = 0.0
    for i in range(count):
        text = f"<|user|>Count from {i}.<|end|><|assistant|>"
        start = len(tokenizer(text)["input_ids"])
        ids = torch.tensor([tokenizer(f"{text}up {i} {i + 1}<|end|>")["input_ids"]])
        with torch.no_grad():
            logps = net(ids).logits.log_softmax(-1)[0, start - 1 : -1]
        total += float(logps.gather(1, ids[0, start:, None]).mean())
    return total / count


@pytest.mark.model
def test_sft_raises_the_log_probability_of_its_demonstrations(tmp_path: Path, world: Path):
    job = sft_job(world, tmp_path / "work")
    result = train(job, log=tmp_path / "train.log")
    assert result.steps == 12
    assert not list((job.output / "checkpoints").glob("*"))
    assert logprob(result.output, 8) > logprob(world / "model", 8) + 1


@pytest.mark.model
@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_the_canary_measures_the_first_prompts_before_and_after(
    tmp_path: Path, world: Path, method: str
):
    settings = {"epochs": 0.2, "batch_size": 4, "micro_batch_size": 2, "sft_weight": 1.0}
    jobs = {"dpo": dpo_job, "sft": sft_job}
    job = jobs[method](world, tmp_path / "work")
    known = {k: v for k, v in settings.items() if k in type(job.settings).model_fields}
    job = replace(job, settings=job.settings.model_copy(update=known))
    result = train(job, log=tmp_path / "train.log")
    rows = read_canary(job.output)
    assert [row.messages[0].content for row in rows] == [f"Count from {i}." for i in range(8)]
    assert [row.answer for row in rows] == [f"up {i} {i + 1}" for i in range(8)]
    for model, told in (
        (world / "model", [r.logprob_before / r.tokens for r in rows]),
        (result.output, [r.logprob_after / r.tokens for r in rows]),
    ):
        assert sum(told) / 8 == pytest.approx(logprob(model, 8), abs=1e-4)
    assert sum(r.logprob_after for r in rows) > sum(r.logprob_before for r in rows)


@pytest.mark.model
def test_a_blow_up_is_an_error_and_gives_no_result(tmp_path: Path, world: Path):
    import torch
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(world / "model", model)
    weights = load_file(model / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = torch.inf
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    job = replace(dpo_job(world, tmp_path / "work"), model=model)
    with pytest.raises(TrainingError, match=r"was not finite at step 1; log: .*train.log") as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "diverged"
    assert not (job.output / "result.json").exists()


@pytest.mark.model
def test_a_gradient_that_overflows_is_final_although_the_loss_is_finite(
    tmp_path: Path, world: Path
):
    settings = DPO.model_copy(update={"sft_weight": 1e30, "epochs": 0.5})
    job = replace(dpo_job(world, tmp_path / "work"), settings=settings)
    with pytest.raises(
        TrainingError, match=r"the gradient's norm was not finite at step 1; log: "
    ) as e:
        train(job, log=tmp_path / "train.log", retries=2)
    assert e.value.kind == "diverged"
    assert starts(job.output) == [0]
    assert math.isfinite(read_steps(job.output / "metrics.jsonl")[0].metrics["loss"])
    assert not (job.output / "model").exists()


@pytest.mark.model
def test_unchanged_weights_are_an_error_and_the_reference_is_the_one_named(
    tmp_path: Path, world: Path
):
    reference = make_model(tmp_path / "reference", seed=1)
    settings = DPO.model_copy(update={"learning_rate": 1e-300, "epochs": 0.1})
    job = replace(dpo_job(world, tmp_path / "work"), reference=reference, settings=settings)
    seen: list[TrainerProgress] = []
    with pytest.raises(
        TrainingError, match=r"3 steps with a learning rate of at most 1e-300 .*; log: "
    ) as e:
        train(job, log=tmp_path / "train.log", on_progress=seen.append)
    assert e.value.kind == "unchanged"
    # Against itself every reward would be zero before the first step.
    assert abs(seen[0].metrics["rewards/chosen"]) > 1e-3


def test_a_result_of_another_job_or_with_a_changed_byte_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = plain_job(tmp_path)
    identity = prepare(job)
    model = job.folder("model")
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"trained")
    canary = job.folder(CANARY)
    canary.write_text("[]")
    history = write_history(job.output, [{"step": 1, "loss": 0.5}])
    result = {
        "identity": identity, "steps": 2, "max_steps": 2, "metrics": {"loss": 0.5},
        "files": describe_files(model), "canary": sha256(canary), "history": sha256(history),
    }  # fmt: skip
    path = job.folder("result.json")
    path.write_text(json.dumps(result))
    assert read_result(job, identity) == result
    assert read_result(job, "another") is None
    for change in ({"steps": 1}, {"metrics": {"loss": float("nan")}}, {"files": {}}):
        path.write_text(json.dumps(result | change))
        assert read_result(job, identity) is None, change
    path.write_text(json.dumps(result)[:-3])
    assert read_result(job, identity) is None
    path.write_text(json.dumps(result))
    canary.unlink()
    assert read_result(job, identity) is None
    canary.write_text("[]")
    history.write_text("")
    assert read_result(job, identity) is None
    write_history(job.output, [{"step": 1, "loss": 0.5}])
    assert read_result(job, identity) == result
    (model / "model.safetensors").write_bytes(b"trainee")
    assert read_result(job, identity) is None


def test_job_json_names_every_input_by_its_bytes(tmp_path: Path):
    job = plain_job(tmp_path)
    first = prepare(job)
    assert read_job(job.folder("job.json")) == job
    assert prepare(job) == first
    write_pairs(tmp_path / "pairs.parquet", 3)
    assert prepare(job) != first


def test_no_checkpoint_of_other_data_is_left_to_resume_from(tmp_path: Path):
    job = plain_job(tmp_path)
    identity = prepare(job)
    checkpoint = write_checkpoint(job.folder("checkpoints"), 4)
    seal_checkpoint(checkpoint, identity)
    assert prepare(job) == identity
    assert newest_whole(job.folder("checkpoints"), identity) == checkpoint
    write_pairs(tmp_path / "pairs.parquet", 3)
    changed = prepare(job)
    assert newest_whole(job.folder("checkpoints"), changed) is None
    assert not checkpoint.exists()


def test_steps_after_the_point_of_a_resume_are_undone(tmp_path: Path):
    def row(step: int) -> str:
        metrics = {"loss": float(step)}
        return json.dumps({"event": "step", "step": step, "max_steps": 9, "metrics": metrics})

    def start(step: int) -> str:
        return "\n" + json.dumps({"event": "start", "resumed_from": step, "pid": 1})

    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([start(0), row(1), row(2), row(3), row(4)[:20]]) + start(2) + "\n")
    assert [s.step for s in read_steps(path)] == [1, 2]


def test_the_launcher_gets_the_jobs_processes_and_no_defaults_of_the_user(tmp_path: Path):
    job = replace(plain_job(tmp_path), processes=2)
    job.output.mkdir()
    argv = launch_argv(job)
    config = Path(argv[argv.index("--config_file") + 1])
    assert json.loads(config.read_text()) == accelerate_settings(2)
    assert argv[argv.index("--num_processes") + 1] == "2"


def test_the_parent_passes_no_secrets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.setenv("LPFLOOP_API_KEY", "canary")
    assert "canary" not in child_environment(plain_job(tmp_path)).values()
