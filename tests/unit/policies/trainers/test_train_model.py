"""Work of a training's parent: jobs, checks of results and steps, the environment."""

import json
from pathlib import Path

from trainings import plain_job, sha256, write_pairs

from lpfloop.policies.engines.canary import CANARY
from lpfloop.policies.trainers.checkpoints import describe_files
from lpfloop.policies.trainers.job import read_job
from lpfloop.policies.trainers.launch import environment
from lpfloop.policies.trainers.train_model import (
    prepare,
    read_result,
)
from lpfloop.policies.trainers.work_folder import read_steps


def test_results_that_do_not_count(tmp_path: Path):
    job = plain_job(tmp_path)
    identity = prepare(job)
    model = job.folder("model")
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"trained")
    canary = job.folder(CANARY)
    canary.write_text("[]")
    result = {
        "identity": identity, "steps": 2, "max_steps": 2, "metrics": {"loss": 0.5},
        "files": describe_files(model), "canary": sha256(canary), "history": [],
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
    assert read_result(job, identity) == result
    (model / "model.safetensors").write_bytes(b"trainee")
    assert read_result(job, identity) is None


def test_a_job_names_its_inputs_by_their_bytes(tmp_path: Path):
    job = plain_job(tmp_path)
    first = prepare(job)
    assert read_job(job.folder("job.json")) == job
    assert prepare(job) == first
    write_pairs(tmp_path / "pairs.parquet", 3)
    assert prepare(job) != first


def test_a_resume_undoes_later_steps(tmp_path: Path):
    def row(step: int) -> str:
        metrics = {"loss": float(step)}
        return json.dumps({"event": "step", "step": step, "max_steps": 9, "metrics": metrics})

    def start(step: int) -> str:
        return "\n" + json.dumps({"event": "start", "resumed_from": step, "pid": 1})

    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([start(0), row(1), row(2), row(3), row(4)[:20]]) + start(2) + "\n")
    assert [s.step for s in read_steps(path)] == [1, 2]


def test_no_secrets_are_passed_on(tmp_path: Path, environ: dict[str, str]):
    environ |= {"HF_TOKEN": "canary", "LPFLOOP_API_KEY": "canary"}
    assert "canary" not in environment(plain_job(tmp_path)).values()
